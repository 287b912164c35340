#include <algorithm>
#include <cmath>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/augment/device_table.h>
#include <sinter/nn/augment/pixel_steps.h>

namespace sinter::nn {

int32_t fixed_point(double value) {
  return static_cast<int32_t>(
      std::clamp(std::round(value * ops::kStepOne), double{INT32_MIN}, double{INT32_MAX}));
}

PixelStep fixed_step(ops::ImageStep step, double value) {
  return {step, {fixed_point(value)}};
}

PixelStep affine_step(const std::array<double, 6>& matrix) {
  PixelStep step{ops::ImageStep::kAffine, {}};
  std::ranges::transform(matrix, step.parameters.begin(), fixed_point);
  return step;
}

Tensor apply_steps(const Tensor& images, const std::vector<std::vector<PixelStep>>& steps) {
  const NoGrad no_grad;
  Tensor augmented = images;
  for (const std::vector<PixelStep>& of_images : steps) {
    const bool nothing = std::ranges::all_of(
        of_images, [](const PixelStep& step) { return step.step == ops::ImageStep::kNone; });
    if (nothing) continue;
    std::vector<int32_t> table;
    for (const PixelStep& step : of_images) {
      table.push_back(static_cast<int32_t>(step.step));
      table.insert(table.end(), step.parameters.begin(), step.parameters.end());
    }
    const auto count = static_cast<int64_t>(of_images.size());
    augmented =
        ops::augment_images(augmented, device_table(table, {count, ops::kStepFields}, images.device()));
  }
  return augmented;
}

void check_pixels(const Tensor& images, int64_t rows, const char* tag) {
  SINTER_CHECK(images.dtype() == DType::kUInt8 && images.rank() == 4 && images.shape()[0] == rows,
               "[{}] expected uint8 pixels ({}, H, W, C) but got {} {}", tag, rows, images.dtype(),
               images.shape());
}

}  // namespace sinter::nn
