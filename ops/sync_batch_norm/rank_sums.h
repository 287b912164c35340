// What ranks add up for the statistics of all their batches: the sums of a channel's elements, of their
// squares, and behind all channels the number of elements that each has.
#pragma once

#include <cstdint>

#include <sinter/core/runtime/backend.h>

namespace sinter::ops {

inline int64_t rank_sums_count(int64_t channels) {
  return 2 * channels + 1;
}

/// Sums `own` over all ranks into `sums`, on and behind `stream`; both have rank_sums_count() elements.
void sum_over_ranks(const double* own, double* sums, int64_t count, uint64_t communicator,
                    const Stream& stream);

}  // namespace sinter::ops
