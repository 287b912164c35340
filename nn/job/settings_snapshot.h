// What the kernels of a job were prepared under, and for which inputs.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

/// What kernels read when they are prepared, and random ops when they are traced. What was prepared under
/// other settings stays right, but is not what they ask for.
struct SettingsSnapshot {
  bool allow_tf32 = settings::allow_tf32();
  bool deterministic = settings::deterministic();
  bool autotune = settings::autotune();
  int threads = num_threads();
  RandomPartScope::Part random_part = RandomPartScope::current();
  bool operator==(const SettingsSnapshot&) const = default;
};

inline bool same_specs(std::span<const Tensor> tensors, const std::vector<TensorSpec>& specs) {
  return std::ranges::equal(tensors, specs,
                            [](const Tensor& t, const TensorSpec& spec) { return t.spec() == spec; });
}

}  // namespace sinter::nn
