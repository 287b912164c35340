#include <cmath>
#include <vector>

#include <sinter/nn/augment/rand_augment_steps.h>
#include <sinter/nn/augment/trivial_augment.h>

namespace sinter::nn {
namespace {

constexpr int64_t kBins = 31;
// The ends of the ranges.
constexpr double kMostShear = 0.99;
constexpr double kMostTranslation = 32;  // pixels
constexpr double kMostDegrees = 135;
constexpr double kMostFactor = 0.99;
constexpr double kMostBits = 6;  // that posterise takes away

}  // namespace

PixelStep trivial_augment_step(RandAugmentStep step, int64_t bin, double sign, int64_t height,
                               int64_t width) {
  using enum RandAugmentStep;
  // Of whole numbers, so that what divides is whole: a threshold is not to be rounded up past one.
  const auto along = [bin](double from, double to) {
    return from + (to - from) * static_cast<double>(bin) / static_cast<double>(kBins - 1);
  };
  const auto amount = [&]() -> double {
    switch (step) {
      case kShearX:
      case kShearY:
        return sign * along(0, kMostShear);
      case kTranslateX:
      case kTranslateY:
        return sign * std::floor(along(0, kMostTranslation));
      case kRotate:
        return sign * along(0, kMostDegrees);
      case kPosterize:
        return 8 - std::nearbyint(along(0, kMostBits));
      case kSolarize:
        return std::ceil(along(255, 0));
      default:
        return 1 + sign * along(0, kMostFactor);
    }
  };
  return pixel_step(step, amount(), height, width);
}

Tensor TrivialAugment::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "trivial_augment");
  std::vector<PixelStep> steps;
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    const auto step = static_cast<RandAugmentStep>(random.below(kRandAugmentSteps));
    const auto bin = static_cast<int64_t>(random.below(kBins));
    const double sign = is_signed(step) && random.uniform() < 0.5F ? -1.0 : 1.0;
    steps.push_back(trivial_augment_step(step, bin, sign, images.shape()[1], images.shape()[2]));
  }
  return apply_steps(images, {steps});
}

}  // namespace sinter::nn
