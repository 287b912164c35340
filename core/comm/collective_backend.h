// What is under a communicator: for tensors on the CPU Gloo, or the connections to rank 0, and NCCL for those
// on a GPU. Internal.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/comm/rank_watch.h>

namespace sinter::comm {

/// An error that began in this process.
class OwnError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// The time is over: whoever is furthest behind is its cause.
class LateError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Members throw CommunicationError with what the library says.
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  virtual void all_reduce(void* data, int64_t count, DType dtype, const Stream& stream) = 0;
  /// `to` has `count` elements, `from` as many for each rank.
  virtual void reduce_scatter(const void* from, void* to, int64_t count, DType dtype,
                              const Stream& stream) = 0;
  virtual void all_gather(const void* from, void* to, size_t bytes, const Stream& stream) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, const Stream& stream) = 0;
  virtual void begin_all_reduce(const Communicator::Bucket& bucket, const Stream& stream) = 0;
  virtual void end_all_reduce(const void* sums, const Stream& stream) = 0;
  /// From any thread: lets what waits end with an error.
  virtual void abort(const std::string& text) noexcept = 0;

  // For work that goes on after the calls have returned, as a GPU's does.

  /// Pieces of work that other ranks have a part in. They end in the order in which they were queued.
  struct Progress {
    int64_t queued = 0;
    int64_t ended = 0;
  };
  /// From any thread: how far the work is; nothing where it was aborted.
  virtual Progress progress() { return {}; }
  /// From any thread: throws for an error of work whose call has returned.
  virtual void check_work() {}
  /// Takes what is on the current stream for a piece of work: captured steps are queued without calls.
  virtual void note_work() {}
};

/// Each is called by all ranks at the same place behind their meeting.
std::unique_ptr<CollectiveBackend> make_star_backend(RankWatch& ranks);
std::unique_ptr<CollectiveBackend> make_gloo_backend(RankWatch& ranks, const ProcessEnvironment& environment,
                                                     const CommunicatorOptions& options);
std::unique_ptr<CollectiveBackend> make_nccl_backend(RankWatch& ranks, const CommunicatorOptions& options);

/// The version of Gloo, in words that differ where two cannot work together; empty in a build without.
std::string gloo_version();

using MakeBackend =
    std::function<std::unique_ptr<CollectiveBackend>(RankWatch& ranks, const CommunicatorOptions& options)>;
/// What makes the backend of GPUs: make_nccl_backend, unless a test puts another there.
MakeBackend& gpu_backend_maker();

}  // namespace sinter::comm
