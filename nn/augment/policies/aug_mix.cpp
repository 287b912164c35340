#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/augment/device_table.h>
#include <sinter/nn/augment/policies/aug_mix.h>
#include <sinter/nn/augment/policies/draws.h>
#include <sinter/nn/augment/policies/policy_steps.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn {
namespace {

constexpr uint64_t kMostDepth = 3;  // of chains of random depth
constexpr int64_t kBins = 10;

// The paper's steps, then those that torchvision adds.
constexpr RandAugmentStep kSteps[] = {
    RandAugmentStep::kShearX,     RandAugmentStep::kShearY,       RandAugmentStep::kTranslateX,
    RandAugmentStep::kTranslateY, RandAugmentStep::kRotate,       RandAugmentStep::kPosterize,
    RandAugmentStep::kSolarize,   RandAugmentStep::kAutoContrast, RandAugmentStep::kEqualize,
    RandAugmentStep::kBrightness, RandAugmentStep::kColor,        RandAugmentStep::kContrast,
    RandAugmentStep::kSharpness};
constexpr uint64_t kPaperSteps = 9, kAllSteps = 13;

/// Steps of the chains of each image, and its shares, in 1/65536: of itself, then of each chain.
struct Drawn {
  std::vector<std::vector<std::vector<PixelStep>>> chains;  // [chain][place][image]
  std::vector<std::vector<float>> shares;                   // [1 + chain][image]
};

/// Whole numbers of 1/65536 that add up to 1, so that floats hold every product and sum exactly.
std::vector<float> draw_shares(const AugMixOptions& options, data::SampleRandom& random) {
  const double own = draw_gamma(random, options.alpha), others = draw_gamma(random, options.alpha);
  std::vector<double> parts;
  double sum = 0;
  for (int64_t k = 0; k < options.width; ++k) {
    parts.push_back(draw_gamma(random, options.alpha));
    sum += parts.back();
  }
  // A tiny alpha may round all of them to 0.
  const double scale = sum > 0 && own + others > 0 ? others / (own + others) / sum : 0;
  std::vector<float> shares = {static_cast<float>(ops::kStepOne)};
  for (const double part : parts) {
    shares.push_back(static_cast<float>(std::floor(part * scale * ops::kStepOne)));
    shares.front() -= shares.back();
  }
  return shares;
}

Drawn draw(const AugMixOptions& options, const Shape& images, const data::BatchRandom& draws) {
  const auto width = static_cast<size_t>(options.width);
  const auto most = options.depth > 0 ? static_cast<uint64_t>(options.depth) : kMostDepth;
  Drawn drawn{.chains = {width, std::vector<std::vector<PixelStep>>(most)},
              .shares = std::vector<std::vector<float>>(width + 1)};
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    const std::vector<float> shares = draw_shares(options, random);
    for (size_t k = 0; k <= width; ++k) drawn.shares[k].push_back(shares[k]);
    for (auto& chain : drawn.chains) {
      const uint64_t depth = options.depth > 0 ? most : 1 + random.below(kMostDepth);
      for (uint64_t place = 0; place < most; ++place) {
        const RandAugmentStep step = kSteps[random.below(options.all_steps ? kAllSteps : kPaperSteps)];
        const auto bin = static_cast<int64_t>(random.below(static_cast<uint64_t>(options.severity)));
        const double sign = random.uniform() < 0.5F ? -1.0 : 1.0;
        chain[place].push_back(place < depth ? aug_mix_step(step, bin, sign, images[1], images[2])
                                             : PixelStep{});
      }
    }
  }
  return drawn;
}

}  // namespace

PixelStep aug_mix_step(RandAugmentStep step, int64_t bin, double sign, int64_t height, int64_t width) {
  using enum RandAugmentStep;
  if (step == kTranslateX || step == kTranslateY) {
    const auto side = static_cast<double>(step == kTranslateX ? width : height);
    return pixel_step(step, sign * std::floor(side * static_cast<double>(bin) / (3 * (kBins - 1))), height,
                      width);
  }
  if (step == kPosterize) {
    const double bits = std::nearbyint(4 * static_cast<double>(bin) / (kBins - 1));
    return pixel_step(step, 4 - bits, height, width);
  }
  return rand_augment_step(step, bin, kBins, sign, height, width);
}

AugMix::AugMix(const AugMixOptions& options) : options_(options) {
  SINTER_CHECK(options.severity >= 1 && options.severity <= 10,
               "[aug_mix] expected a severity from 1 to 10 but got {}", options.severity);
  SINTER_CHECK(options.width >= 1 && options.width <= 16, "[aug_mix] expected 1 to 16 chains but got {}",
               options.width);
  SINTER_CHECK(options.depth >= 0 && options.depth <= 16,
               "[aug_mix] expected a depth from 1 to 16, or 0, but got {}", options.depth);
  SINTER_CHECK(options.alpha > 0 && options.alpha <= 1000, "[aug_mix] expected 0 < alpha <= 1000 but got {}",
               options.alpha);
}

Tensor AugMix::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "aug_mix");
  const NoGrad no_grad;
  const Drawn drawn = draw(options_, images.shape(), draws);
  const auto share = [&](size_t k) {
    return device_table(drawn.shares[k], {draws.size(), 1, 1, 1}, images.device());
  };
  Tensor mixed = ops::cast(images, DType::kFloat32) * share(0);
  for (size_t k = 0; k < drawn.chains.size(); ++k)
    mixed = mixed + ops::cast(apply_steps(images, drawn.chains[k]), DType::kFloat32) * share(k + 1);
  return ops::cast(ops::affine(mixed, 1.0 / ops::kStepOne, 0.0), DType::kUInt8);
}

}  // namespace sinter::nn
