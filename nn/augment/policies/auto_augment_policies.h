// What AutoAugment's policies consist of.
#pragma once

#include <cstdint>
#include <span>

#include <sinter/nn/augment/policies/auto_augment.h>
#include <sinter/nn/augment/rand_augment_steps.h>

namespace sinter::nn {

inline constexpr int64_t kAutoAugmentBins = 10;

struct AutoAugmentStep {
  RandAugmentStep step;
  double probability;
  int64_t strength;  ///< in [0, kAutoAugmentBins), of steps that have one
};
struct AutoAugmentPart {
  AutoAugmentStep first, second;
};

/// The 25 parts of a policy.
std::span<const AutoAugmentPart> auto_augment_parts(AutoAugmentPolicy policy);

}  // namespace sinter::nn
