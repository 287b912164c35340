#include <utility>
#include <vector>

#include <sinter/nn/augment/policies/auto_augment.h>
#include <sinter/nn/augment/policies/auto_augment_policies.h>

namespace sinter::nn {

Tensor AutoAugment::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "auto_augment");
  const std::span<const AutoAugmentPart> parts = auto_augment_parts(options_.policy);
  std::vector<std::vector<PixelStep>> steps(2);
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    const AutoAugmentPart& part = parts[random.below(parts.size())];
    for (const auto& [k, one] : {std::pair{0U, part.first}, std::pair{1U, part.second}}) {
      const auto& [step, probability, strength] = one;
      const bool done = static_cast<double>(random.uniform()) < probability;
      const double sign = random.uniform() < 0.5F ? -1.0 : 1.0;
      steps[k].push_back(done ? rand_augment_step(step, strength, kAutoAugmentBins, sign, images.shape()[1],
                                                  images.shape()[2])
                              : PixelStep{});
    }
  }
  return apply_steps(images, steps);
}

}  // namespace sinter::nn
