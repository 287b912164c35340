// The library under a communicator: Gloo for tensors on the CPU, NCCL for those on a GPU. Internal.
#pragma once

#include <memory>
#include <string>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/comm/rendezvous.h>

namespace sinter::comm {

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
  virtual void barrier() = 0;
  virtual void begin_all_reduce(const Communicator::Bucket& bucket, const Stream& stream) = 0;
  virtual void end_all_reduce(const void* sums, const Stream& stream) = 0;
  /// From any thread: lets what waits end with an error.
  virtual void abort(const std::string& text) noexcept = 0;
  /// Why it was aborted, by abort() or by itself; empty: it was not. From any thread.
  virtual std::string failure() const { return {}; }
};

/// Each is called by all ranks at the same place of their meeting.
std::unique_ptr<CollectiveBackend> make_gloo_backend(Meeting& meeting, const CommunicatorOptions& options);
std::unique_ptr<CollectiveBackend> make_nccl_backend(Meeting& meeting, const CommunicatorOptions& options);

}  // namespace sinter::comm
