#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/augment/policies/draws.h>
#include <sinter/nn/augment/policies/policy_steps.h>
#include <sinter/nn/augment/policies/timm_rand_augment.h>

namespace sinter::nn {
namespace {

constexpr RandAugmentStep kTimmSteps[] = {
    RandAugmentStep::kAutoContrast, RandAugmentStep::kEqualize,   RandAugmentStep::kInvert,
    RandAugmentStep::kRotate,       RandAugmentStep::kPosterize,  RandAugmentStep::kSolarize,
    RandAugmentStep::kSolarizeAdd,  RandAugmentStep::kColor,      RandAugmentStep::kContrast,
    RandAugmentStep::kBrightness,   RandAugmentStep::kSharpness,  RandAugmentStep::kShearX,
    RandAugmentStep::kShearY,       RandAugmentStep::kTranslateX, RandAugmentStep::kTranslateY};

}  // namespace

PixelStep timm_step(RandAugmentStep step, double level, double sign, int64_t height, int64_t width) {
  using enum RandAugmentStep;
  const double strength = level / 10;
  const auto amount = [&]() -> double {
    switch (step) {
      case kShearX:
      case kShearY:
        return sign * 0.3 * strength;
      case kTranslateX:  // the other way: timm counts from what is shown
      case kTranslateY:
        return -sign * 0.45 * strength * static_cast<double>(step == kTranslateX ? width : height);
      case kRotate:
        return sign * 30 * strength;
      case kPosterize:
        return 4 - std::floor(4 * strength);
      case kSolarize:
        return 256 - std::min(256.0, std::floor(256 * strength));
      case kSolarizeAdd:
        return std::min(128.0, std::floor(110 * strength));
      default:
        return std::max(0.1, 1 + sign * 0.9 * strength);
    }
  };
  return pixel_step(step, amount(), height, width);
}

TimmRandAugment::TimmRandAugment(const TimmRandAugmentOptions& options) : options_(options) {
  SINTER_CHECK(options.steps >= 1 && options.steps <= 16,
               "[timm_rand_augment] expected 1 to 16 steps but got {}", options.steps);
  SINTER_CHECK(options.magnitude >= 0 && options.magnitude <= 10,
               "[timm_rand_augment] expected a magnitude from 0 to 10 but got {}", options.magnitude);
  SINTER_CHECK(options.deviation >= 0 && options.deviation <= 100,
               "[timm_rand_augment] expected a deviation from 0 to 100 but got {}", options.deviation);
  SINTER_CHECK(options.probability >= 0 && options.probability <= 1,
               "[timm_rand_augment] expected a probability but got {}", options.probability);
}

Tensor TimmRandAugment::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "timm_rand_augment");
  std::vector<std::vector<PixelStep>> steps(static_cast<size_t>(options_.steps));
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    for (std::vector<PixelStep>& of_images : steps) {
      const RandAugmentStep step = kTimmSteps[random.below(std::size(kTimmSteps))];
      const bool done = static_cast<double>(random.uniform()) < options_.probability;
      const double level =
          std::clamp(options_.magnitude + options_.deviation * draw_normal(random), 0.0, 10.0);
      const double sign = random.uniform() < 0.5F ? -1.0 : 1.0;
      of_images.push_back(done ? timm_step(step, level, sign, images.shape()[1], images.shape()[2])
                               : PixelStep{});
    }
  }
  return apply_steps(images, steps);
}

}  // namespace sinter::nn
