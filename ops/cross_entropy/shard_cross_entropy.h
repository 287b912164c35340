// The cross-entropy of logits whose classes are divided among ranks.
#pragma once

#include <sinter/core/comm/communicator.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// The row that stands for a class of another rank.
inline constexpr int64_t kElsewhere = -1;

/// The losses of this rank's rows, (N), of softmax over the classes of all ranks. `logits`: (ranks * N, C),
/// of the rows of all ranks, in their order, and of the classes of this rank, whose number may differ from
/// rank to rank. `rows`: (ranks * N), int64, each row's class among this rank's, or kElsewhere; every row's
/// class is on one rank. float32 for 16-bit logits, else of the dtype of the logits; differentiable in the
/// logits, whose gradient is that of the sum of all ranks' losses.
///
/// All ranks make the call in the same order, and go back through it so. They exchange the logarithm of each
/// row's sum of exponentials among their own classes and the logit of its class, and on the way back the
/// gradients of the losses: numbers per row, not per class. Throws InvalidArgument for other shapes and
/// dtypes; on the CPU also for another class, of which the loss on a GPU is NaN.
Tensor shard_cross_entropy(const Tensor& logits, const Tensor& rows, const Communicator& communicator);

}  // namespace sinter::ops
