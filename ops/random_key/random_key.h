// Keys of random numbers, as tensors.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct RandomKeyAttributes {
  uint64_t seed = 0;
  uint64_t offset = 0;
  Device device = {};

  bool operator==(const RandomKeyAttributes&) const = default;
  template <class Self = RandomKeyAttributes>
  static constexpr auto fields() {
    return std::tuple(field("seed", &Self::seed), field("offset", &Self::offset),
                      field("device", &Self::device));
  }
};

namespace update {
/// Seed and offset of a key as int64 (2) on `device`, which random ops such as dropout_with_key read there.
/// Nothing is copied from the host, so nothing waits.
Tensor random_key(RandomKey key, Device device);

/// The key `offset` blocks behind `base`, which is a key of this kind: so one tensor that changes from step
/// to step gives the keys of all random ops of a step.
Tensor random_key_behind(const Tensor& base, uint64_t offset);
}  // namespace update

}  // namespace sinter::ops
