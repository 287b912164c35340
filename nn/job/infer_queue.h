// InferQueue: requests of many threads, which go through a job together.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/job/infer_job.h>

namespace sinter::nn {

struct InferQueueOptions {
  int64_t max_batch = 32;    ///< rows that go through the job together
  double max_wait_ms = 2.0;  ///< that a request waits for others; 0: goes with what is there already
  /// The sizes of batches that the job meets, growing; a smaller batch is filled up with zeros. Empty: the
  /// powers of two below max_batch, and it. No more than the job's max_graphs, or it makes programs anew.
  std::vector<int64_t> batch_sizes = {};
};

/// Collects requests and runs them as batches, on a thread of its own: a network gives far more rows a second
/// in batches than one by one.
///
///   nn::InferQueue queue(job);
///   Tensor logits = queue.submit(image).get();  // on any thread
///
/// The job must outlive the queue, and nobody else may use it meanwhile. Rows of a request do not depend on
/// those beside it, but their number may change the last bits.
class InferQueue {
 public:
  /// Throws InvalidArgument unless sizes are positive, growing, and end with max_batch.
  explicit InferQueue(InferJob& job, const InferQueueOptions& options = {});
  /// Answers what was submitted, and ends.
  ~InferQueue();
  InferQueue(const InferQueue&) = delete;
  InferQueue& operator=(const InferQueue&) = delete;

  /// The job's first result for x (n, ...), of n <= max_batch rows, where it is when the future is ready;
  /// that gets what the job throws for it. x must stay as it is until then. Requests of another shape, dtype
  /// or device go in batches of their own. On a GPU results belong to the default stream, as all that the
  /// queue's thread makes; work on that and on the stream that is current in this call may read them however
  /// soon they are let go of, work on a third one after storage()->record_stream(). Safe to call from several
  /// threads at once. Throws InvalidArgument for an undefined tensor, or none or too many rows.
  std::future<Tensor> submit(const Tensor& x);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace sinter::nn
