// The check of index tensors, which on the CPU costs little beside their use.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

/// Throws InvalidArgument, naming the first index (int64) that is not in [0, limit).
inline void check_indices(const TensorView& indices, int64_t limit, const char* tag) {
  const auto* values = indices.as<const int64_t>();
  const int64_t count = indices.numel();
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    bad |= static_cast<int64_t>(static_cast<uint64_t>(values[i]) >= static_cast<uint64_t>(limit));
  }
  if (bad == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    SINTER_CHECK(values[i] >= 0 && values[i] < limit,
                 "[{}] expected indices in [0, {}) but got {} at position {}", tag, limit, values[i], i);
  }
}

}  // namespace sinter::ops
