// Steps of policies with ranges of their own, one by one.
#pragma once

#include <array>
#include <cstdint>

#include <sinter/nn/augment/rand_augment_steps.h>

namespace sinter::nn {

/// timm's: `level` in [0, 10]; `sign`: 1 or -1, for steps that have one. `height`, `width`: of the images.
PixelStep timm_step(RandAugmentStep step, double level, double sign, int64_t height, int64_t width);

/// AugMix's: `bin` in [0, 10) along its ranges.
PixelStep aug_mix_step(RandAugmentStep step, int64_t bin, double sign, int64_t height, int64_t width);

/// A Gaussian blur with this deviation in pixels, in (0, 2]: along rows, then along columns.
std::array<PixelStep, 2> blur_steps(double sigma);

/// What makes a picture grey.
PixelStep greyscale_step();

}  // namespace sinter::nn
