// Calls of sync_batch_norm, as the kernels of ops/norm see them.
#pragma once

#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::ops {

/// Where the op's inputs stand. The share is one over the number of a channel's elements on all ranks.
struct SyncNormInput {
  enum : size_t {
    kX,
    kWeight,
    kBias,
    kMean,
    kInvStd,
    kShare,
    kAlpha,
    kAddend,
    kAddendWeight,
    kAddendBias,
    kAddendMean,
    kAddendInvStd,
    kCount
  };
};

NormProblem sync_batch_norm_problem(const KernelQuery& query);
NormCall sync_batch_norm_call(const KernelContext& context);

/// The sums that ranks add up: of a channel's elements, of their squares, and behind all channels the number
/// of elements that each has.
inline int64_t rank_sums_count(int64_t channels) {
  return 2 * channels + 1;
}

/// Sums `own` over all ranks into `sums`, on and behind `stream`; both have rank_sums_count() elements.
void sum_over_ranks(const double* own, double* sums, int64_t count, uint64_t communicator,
                    const Stream& stream);

}  // namespace sinter::ops
