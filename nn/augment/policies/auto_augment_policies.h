// What AutoAugment's policies consist of.
#pragma once

#include <cstdint>
#include <span>

#include <sinter/nn/augment/policies/auto_augment.h>
#include <sinter/nn/augment/rand_augment_steps.h>

namespace sinter::nn {

struct AutoAugmentStep {
  RandAugmentStep step;
  double probability;
  int64_t strength;  ///< in [0, 10), of steps that have one
};
struct AutoAugmentPart {
  AutoAugmentStep first, second;
};

/// The 25 parts of a policy.
std::span<const AutoAugmentPart> auto_augment_parts(AutoAugmentPolicy policy);

}  // namespace sinter::nn
