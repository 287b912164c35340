// The steps of RandAugment and its kin, one by one. The first 14 are RandAugment's and TrivialAugment's.
#pragma once

#include <cstdint>

#include <sinter/nn/augment/pixel_steps.h>

namespace sinter::nn {

enum class RandAugmentStep {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert,
  kSolarizeAdd,
};
inline constexpr uint64_t kRandAugmentSteps = 14;

/// Whether a step has a sign: left or right, darker or brighter.
bool is_signed(RandAugmentStep step);

/// `amount`: of shear, pixels, degrees, a factor, bits that are left, or the least value that is inverted, as
/// the step has it; of kSolarizeAdd what is added. `height`, `width`: of the images.
PixelStep pixel_step(RandAugmentStep step, double amount, int64_t height, int64_t width);

/// RandAugment's and AutoAugment's: `bin` in [0, bins) along its range, bins >= 2; `sign`: 1 or -1, for those
/// that have one. `height`, `width`: of the images.
PixelStep rand_augment_step(RandAugmentStep step, int64_t bin, int64_t bins, double sign, int64_t height,
                            int64_t width);

/// TrivialAugment's: `bin` in [0, 31) along its ranges.
PixelStep trivial_augment_step(RandAugmentStep step, int64_t bin, double sign, int64_t height, int64_t width);

}  // namespace sinter::nn
