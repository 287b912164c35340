// Batch norms over all ranks: their statistics are those of the whole batch, not of a rank's part of it.
#pragma once

#include <sinter/core/comm/communicator.h>

namespace sinter::nn {

/// While one lives, batch norms in training that this thread calls normalise by the statistics of all ranks'
/// batches together (ops::sync_batch_norm), and gradients that go back through those calls, then or later,
/// take that into account. N ranks then train as one process with the whole batch does.
///
///   const nn::SyncBatchNormScope together(*ranks);
///   const Tensor loss = loss_function(model(x), y);
///
/// All ranks make the same calls in the same order. A job does this by itself with
/// TrainJobOptions::sync_batch_norm. With one rank nothing changes. The communicator must outlive the
/// gradients.
class SyncBatchNormScope {
 public:
  [[nodiscard]] explicit SyncBatchNormScope(const Communicator& ranks);
  ~SyncBatchNormScope();
  SyncBatchNormScope(const SyncBatchNormScope&) = delete;
  SyncBatchNormScope& operator=(const SyncBatchNormScope&) = delete;

  /// The ranks of this thread's innermost SyncBatchNormScope; null: there is none, or it is of one rank.
  static const Communicator* ranks();

 private:
  const Communicator* before_;
};

}  // namespace sinter::nn
