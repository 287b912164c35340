// Batch normalisation with the statistics of all ranks' batches together.
#pragma once

#include <cstdint>
#include <tuple>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct SyncBatchNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance
  double momentum = 0.1;  ///< in [0, 1]: running = (1 - momentum) * running + momentum * batch
  Layout layout = Layout::kNCHW;
};

/// batch_norm in training, over the parts of a batch that all ranks have: y and the gradient of x are those
/// of one process with the whole batch, and running statistics move alike on all ranks. The gradients of
/// weight and bias are those of this rank's part, for the ranks' gradients are summed afterwards.
///
/// Shapes, dtypes and errors as batch_norm; ranks may have different numbers of images, and none. All ranks
/// make the call, and go back through it, in the same order: each sums once over the ranks. Sums of elements
/// and of their squares go between ranks in float64, so that a large mean costs no digits. The communicator
/// must outlive whatever runs the call or its gradient.
Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const SyncBatchNormOptions& options,
                       const Communicator& communicator);

/// Of the op "rank_statistics", the first half; the second is batch_norm_act with given statistics: of x (and
/// running mean and variance, which may be absent and are moved) it gives the mean and 1 / sqrt(variance +
/// epsilon) per channel over all ranks, and one over the number of elements that a channel has there.
struct RankStatisticsAttributes {
  double epsilon = 1e-5;
  double momentum = 0.1;
  Layout layout = Layout::kNCHW;
  uint64_t communicator = 0;  ///< Communicator::id(); 0: this process alone

  bool operator==(const RankStatisticsAttributes&) const = default;
  template <class Self = RankStatisticsAttributes>
  static constexpr auto fields() {
    return std::tuple(field("epsilon", &Self::epsilon), field("momentum", &Self::momentum),
                      field("layout", &Self::layout), field("communicator", &Self::communicator));
  }
};

}  // namespace sinter::ops
