// The loader's threads: they fill batches in order, a few ahead of the consumer.
#pragma once

#include <cstdint>
#include <memory>

#include <sinter/nn/data/loader/batch_assembler.h>

namespace sinter::nn::data {

/// A batch of an epoch, by number.
struct BatchPosition {
  int64_t epoch = 0;
  int64_t batch = 0;
};

/// Workers take pieces of batches, oldest batch first; a batch is scheduled when a worker finds nothing else
/// to do and fewer than `prefetch` are in flight. Scheduling runs on into the next epoch. The consumer takes
/// the oldest batch when all its pieces are done. The first error stops all of them for good.
class BatchWorkers {
 public:
  /// Starts options().workers threads, which work from batch `first` on.
  BatchWorkers(std::shared_ptr<BatchAssembler> assembler, BatchPosition first);
  /// Stops the threads and waits for the samples that they are reading; with a read_timeout, for each no
  /// longer than that. A thread that is still reading then is left to itself: what it works on stays alive
  /// until it returns, and its result is dropped.
  ~BatchWorkers();
  BatchWorkers(const BatchWorkers&) = delete;
  BatchWorkers& operator=(const BatchWorkers&) = delete;

  /// The next batch. Throws a worker's exception at once, ahead of finished batches, and IoError if a sample
  /// has been read for longer than read_timeout; these workers are then of no more use. What assembling on
  /// the consumer's stream throws leaves the batch for another call.
  Batch take();
  /// True once take() has thrown an error that ended the work.
  bool failed() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // threads have it too, so that one that hangs finds its things in place
};

}  // namespace sinter::nn::data
