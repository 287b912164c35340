// Communicator: the processes of a job, and operations in which all of them take part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/comm/communication_error.h>
#include <sinter/core/comm/process_environment.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct CommunicatorOptions {
  /// The GPU that this rank computes on, whose tensors then go through NCCL; a CPU: none.
  Device device = {};
  double join_timeout = 120.0;    ///< seconds in which all ranks must have come
  double connect_timeout = 30.0;  ///< seconds in which two of them must then be connected
  /// Seconds that one operation may wait for other ranks; on a GPU, that an operation or a step may take.
  double timeout = 600.0;
  double heartbeat_timeout = 10.0;  ///< seconds of silence after which a rank counts as lost
  /// What the job is for, as its options: a rank that was started for something else is turned away, and
  /// does not disturb the others.
  std::string purpose = {};
};

namespace comm {
class CollectiveBackend;
class DeviceWatch;
class RankWatch;
}  // namespace comm

/// The processes of a job. All of them call the same operations, on tensors of the same dtypes and shapes, in
/// the same order; operations on tensors say so first, and throw CommunicationError on all ranks where that
/// is not so. Operations on CPU tensors (Gloo; without it, or with SINTER_GLOO=off in the environment,
/// everything goes through rank 0) return when they are done; those on a GPU (NCCL) are queued on its current
/// stream as ops are.
///
///   const auto ranks = Communicator::join();  // as torchrun, mpirun or srun say; alone without them
///   ranks->all_reduce_(x);
///
/// A rank that is killed, stopped or fails is named on all others: within `heartbeat_timeout` and two seconds
/// more the log has its rank, host and process, an operation that waits for it ends, and every later one
/// throws CommunicationError with the same words. Whatever a tensor held then is undefined. The same goes for
/// an error of Gloo or NCCL and for an operation that takes longer than `timeout`, also while a GPU works:
/// the rank that meets it tells all others, with the operation and the rank that is furthest behind.
///
/// One thread at a time; abort() may be called from any.
class Communicator {
 public:
  /// Meets the other ranks. Throws InvalidArgument for an environment that contradicts itself,
  /// CommunicationError where they do not come or cannot be connected, and Unsupported if this build has no
  /// NCCL for a GPU, and there are several.
  static std::shared_ptr<Communicator> join(const CommunicatorOptions& options = {});
  static std::shared_ptr<Communicator> join(const ProcessEnvironment& environment,
                                            const CommunicatorOptions& options = {});
  /// Leaves in order; while an exception is on its way, as one that failed.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  const ProcessEnvironment& environment() const { return environment_; }
  /// "rank 2 (node03, process 4711)".
  std::string describe(int rank) const;

  /// The sum over all ranks takes the place of `x` on each; the same bits on all, and from run to run. Any
  /// float dtype, int32 or int64; 16-bit sums are rounded to their dtype at every addition.
  void all_reduce_(const Tensor& x) const;
  /// The sum of all ranks' x (size * n, ...), of which rank r gets the r-th part (n, ...).
  Tensor reduce_scatter(const Tensor& x) const;
  /// The x (n, ...) of all ranks, one behind the other: (size * n, ...). Any dtype.
  Tensor all_gather(const Tensor& x) const;
  /// That of rank `root` takes the place of x. Any dtype.
  void broadcast_(const Tensor& x, int root = 0) const;
  /// Returns when all ranks have called it.
  void barrier() const;
  /// Bits that any rank has set, the same on all: those of the call before, and none at the first, so that
  /// nobody waits for them; alone, those of this call.
  uint64_t agree(uint64_t bits) const;
  /// The numbers of all ranks, one rank behind the other: at most 8 of each, and as many of all. Errors name
  /// the exchange by `call`, which is to be the same on all, as operations are. Alone: this rank's.
  std::vector<int64_t> exchange(const std::string& call, std::span<const int64_t> numbers) const;
  /// Throws CommunicationError, naming the first rank that differs, unless all ranks gave the same text.
  void check_equal(const std::string& text, const char* what) const;
  /// The same, unless all ranks call `operation` on a tensor of this dtype, shape and kind of device: what
  /// the operations above do by themselves, and those for kernels do not. One small exchange on the host.
  void check_call(const char* operation, const TensorSpec& spec) const;

  /// Throws CommunicationError if a rank is lost, or work on the GPU has failed.
  void check() const;
  /// Tells the others that this rank cannot go on, and why.
  void fail(const std::string& reason);
  /// Ends operations that wait, here; every later one throws with this text.
  void abort(const std::string& text) const;
  /// Waits for all ranks and goes. Only the destructor may follow.
  void leave();

  /// For ops: a number that stands for this communicator in attributes, and back. Throws InvalidArgument if
  /// it is gone.
  uint64_t id() const { return id_; }
  static const Communicator& of(uint64_t id);

  // For kernels. What they get is not compared between ranks: ops do so where they are called.

  /// Parts of one sum, `from` each to its place in `sums`, which has `count` elements.
  struct Part {
    const void* from = nullptr;
    int64_t place = 0;
    int64_t count = 0;
  };
  struct Bucket {
    std::span<const Part> parts;
    void* sums = nullptr;
    int64_t count = 0;
    DType dtype = DType::kFloat32;
  };
  /// Sums beside what `stream` does, until end_all_reduce() with the same `sums` lets the stream wait for it.
  /// On a CPU it is done at once.
  void begin_all_reduce(const Bucket& bucket, const Stream& stream) const;
  void end_all_reduce(const void* sums, const Stream& stream) const;
  /// On `stream`: the `bytes` of all ranks one behind the other; and of the sum of all ranks' `from`, which
  /// has `count` elements for each rank, this rank's part. Alone a copy.
  void all_gather(const void* from, void* to, size_t bytes, const Stream& stream) const;
  void reduce_scatter(const void* from, void* to, int64_t count, DType dtype, const Stream& stream) const;
  /// For jobs: `what`, captured work with sums, has been launched on the GPU's current stream. It counts as
  /// an operation, and has its time limit.
  void note_work(const char* what) const;

 private:
  explicit Communicator(const ProcessEnvironment& environment, const CommunicatorOptions& options);
  void connect();
  comm::CollectiveBackend& backend_for(Device device) const;
  template <class Operation>
  void run(const char* name, const Operation& operation) const;
  struct Announcement;
  std::string announce(std::vector<Announcement>& all) const;
  template <class Operation>
  void run_announced(const char* name, const std::string& call, std::span<const std::byte> data,
                     const Operation& operation) const;
  std::string give_up(const CommunicationError& error) const;
  void free_waiting(const std::string& text) const;
  std::string aborted() const;

  ProcessEnvironment environment_;
  CommunicatorOptions options_;
  uint64_t id_ = 0;
  int exceptions_ = 0;                      // on their way when this was made
  std::atomic<bool> gone_ = false;          // has left or failed
  std::unique_ptr<comm::RankWatch> watch_;  // null: alone
  std::unique_ptr<comm::CollectiveBackend> cpu_, gpu_;
  std::unique_ptr<comm::DeviceWatch> host_watch_;    // null: alone
  std::unique_ptr<comm::DeviceWatch> device_watch_;  // null: no GPU
  mutable std::mutex mutex_;
  mutable std::string aborted_;
};

}  // namespace sinter
