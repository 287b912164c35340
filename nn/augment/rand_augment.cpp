#include <cmath>
#include <numbers>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/augment/rand_augment.h>
#include <sinter/nn/augment/rand_augment_steps.h>

namespace sinter::nn {
namespace {

// The ends of the ranges.
constexpr double kShear = 0.3;
constexpr int64_t kTranslation = 150, kTranslationOf = 331;  // of so many pixels of the image's side
constexpr double kDegrees = 30.0;
constexpr double kFactor = 0.9;
constexpr double kBits = 4.0;  // that posterise takes away

/// Counterclockwise around the centre.
PixelStep rotation(double degrees, int64_t height, int64_t width) {
  const double angle = degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
  const double x = static_cast<double>(width) / 2, y = static_cast<double>(height) / 2;
  return affine_step({c, -s, x - c * x + s * y, s, c, y - s * x - c * y});
}

}  // namespace

bool is_signed(RandAugmentStep step) {
  return step >= RandAugmentStep::kShearX && step <= RandAugmentStep::kSharpness;
}

PixelStep pixel_step(RandAugmentStep step, double amount, int64_t height, int64_t width) {
  using enum RandAugmentStep;
  using ops::ImageStep;
  switch (step) {
    case kIdentity:
      return {};
    case kShearX:
      return affine_step({1, amount, 0, 0, 1, 0});
    case kShearY:
      return affine_step({1, 0, 0, amount, 1, 0});
    case kTranslateX:
      return affine_step({1, 0, -amount, 0, 1, 0});
    case kTranslateY:
      return affine_step({1, 0, 0, 0, 1, -amount});
    case kRotate:
      return rotation(amount, height, width);
    case kBrightness:
      return fixed_step(ImageStep::kBrightness, amount);
    case kColor:
      return fixed_step(ImageStep::kSaturation, amount);
    case kContrast:
      return fixed_step(ImageStep::kContrast, amount);
    case kSharpness:
      return fixed_step(ImageStep::kSharpness, amount);
    case kPosterize:
      return {ImageStep::kPosterize, {static_cast<int32_t>(amount)}};
    case kSolarize:
      return {ImageStep::kSolarize, {static_cast<int32_t>(amount)}};
    case kAutoContrast:
      return {ImageStep::kAutocontrast, {}};
    case kEqualize:
      return {ImageStep::kEqualize, {}};
    case kInvert:
      return {ImageStep::kSolarize, {0}};
    case kSolarizeAdd:
      return {ImageStep::kSolarizeAdd, {static_cast<int32_t>(amount)}};
  }
  throw_error<InternalError>("[rand_augment] no such step");
}

PixelStep rand_augment_step(RandAugmentStep step, int64_t bin, int64_t bins, double sign, int64_t height,
                            int64_t width) {
  using enum RandAugmentStep;
  const int64_t last = bins - 1;
  const double strength = static_cast<double>(bin) / static_cast<double>(last);
  const auto amount = [&]() -> double {
    const int64_t side = step == kTranslateX ? width : height;
    switch (step) {
      case kShearX:
      case kShearY:
        return sign * kShear * strength;
      case kTranslateX:
      case kTranslateY:
        // Of whole numbers, here and of thresholds: what divides is not to be rounded past a whole one.
        return sign * static_cast<double>(kTranslation * side * bin / (kTranslationOf * last));
      case kRotate:
        return sign * kDegrees * strength;
      case kPosterize:
        return 8 - std::nearbyint(kBits * strength);
      case kSolarize:
        return static_cast<double>((255 * (last - bin) + last - 1) / last);  // rounded up
      default:
        return 1 + sign * kFactor * strength;
    }
  };
  return pixel_step(step, amount(), height, width);
}

RandAugment::RandAugment(const RandAugmentOptions& options) : options_(options) {
  SINTER_CHECK(options.steps >= 1 && options.steps <= 16, "[rand_augment] expected 1 to 16 steps but got {}",
               options.steps);
  SINTER_CHECK(options.bins >= 2 && options.bins <= 1000, "[rand_augment] expected 2 to 1000 bins but got {}",
               options.bins);
  SINTER_CHECK(options.magnitude >= 0 && options.magnitude < options.bins,
               "[rand_augment] expected a magnitude from 0 to {} but got {}", options.bins - 1,
               options.magnitude);
}

Tensor RandAugment::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "rand_augment");
  std::vector<std::vector<PixelStep>> steps(static_cast<size_t>(options_.steps));
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    for (std::vector<PixelStep>& of_images : steps) {
      const auto step = static_cast<RandAugmentStep>(random.below(kRandAugmentSteps));
      const double sign = is_signed(step) && random.uniform() < 0.5F ? -1.0 : 1.0;
      of_images.push_back(rand_augment_step(step, options_.magnitude, options_.bins, sign, images.shape()[1],
                                            images.shape()[2]));
    }
  }
  return apply_steps(images, steps);
}

}  // namespace sinter::nn
