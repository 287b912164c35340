// Work of the CPU on images, cut so that every thread can have scratch of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/core/runtime/thread_pool.h>

namespace sinter::ops {

/// Elements below which a second thread costs more than it saves.
inline constexpr int64_t kImageGrain = 16384;

/// Splits `count` items of `item_elements` each among at most `threads` slots, KernelContext::threads() where
/// they have scratch of their own, and calls body(slot, begin, end) in parallel.
template <class Body>
void parallel_slots(int threads, int64_t count, int64_t item_elements, Body body) {
  // An item beyond the grain is worth a slot of its own; the product stays small.
  const int64_t most = count * std::clamp<int64_t>(item_elements, 1, kImageGrain) / kImageGrain + 1;
  const int64_t slots = std::min<int64_t>({threads, count, most});
  parallel_for(slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot)
      body(slot, count * slot / slots, count * (slot + 1) / slots);
  });
}

}  // namespace sinter::ops
