// Steps of augmentation of a batch of pixels, some for each image, as ops::augment_images takes them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/augment_images/augment_images.h>

namespace sinter::nn {

/// One image's step.
struct PixelStep {
  ops::ImageStep step = ops::ImageStep::kNone;
  std::array<int32_t, 7> parameters = {};
};

/// A factor, an angle or a place as ops::augment_images takes it.
int32_t fixed_point(double value);
/// A step with one such parameter.
PixelStep fixed_step(ops::ImageStep step, double value);
/// The step that shows at the pixel (x, y) the one at (m0 x + m1 y + m2, m3 x + m4 y + m5).
PixelStep affine_step(const std::array<double, 6>& matrix);

/// steps[k][n] is the k-th step of image n. Images: uint8 (N, H, W, C).
Tensor apply_steps(const Tensor& images, const std::vector<std::vector<PixelStep>>& steps);

/// Throws InvalidArgument unless `images` is uint8 (rows, H, W, C).
void check_pixels(const Tensor& images, int64_t rows, const char* tag);

}  // namespace sinter::nn
