// Collectives on one GPU of each rank, through NCCL.
//
// The communicator is made non-blocking: calls of NCCL return at once and are polled, so that a rank that is
// lost can never hold this thread. Whoever waits on the device is freed by ncclCommAbort, which the watches
// over the ranks and the device call. Behind every call, and behind captured steps, stands an event that
// tells the latter how far the device is. Sums of buckets run on a stream of their own, between two events.
// Jobs capture small sums, as of statistics, with what stands around them, and what stands between sums of
// buckets and exchanges of embeddings, but not those: every kernel of a graph with long branches starts
// later.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <sinter/core/comm/collective_backend.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/unique_handle.h>

namespace sinter::comm {
namespace {

using cuda::UniqueHandle;
using NcclEvent = UniqueHandle<cudaEvent_t, cudaEventDestroy>;

constexpr std::chrono::microseconds kPoll{50};
constexpr size_t kMostWork = 256;  // pieces that are told apart
constexpr double kFarewell = 5.0;  // seconds to finish in

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    default:
      throw_error<InvalidArgument>("[comm] there are no sums of {}", dtype);
  }
}

cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native);
}

class NcclBackend final : public CollectiveBackend {
 public:
  NcclBackend(RankWatch& ranks, const CommunicatorOptions& options)
      : device_(options.device), timeout_(options.timeout), size_(ranks.size()) {
    // Multicast objects of NVLink are shared with everybody on the machine: only who asks for them gets them.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    backend_of(device_).make_current(device_.index);
    ncclUniqueId id{};
    std::string part;
    if (ranks.rank() == 0) {
      check(ncclGetUniqueId(&id), "ncclGetUniqueId");
      part.assign(id.internal, sizeof id.internal);
    }
    part = ranks.exchange(part, "NCCL's id", options.join_timeout).front();
    if (part.size() != sizeof id.internal) throw CommunicationError("rank 0 gave no id for NCCL");
    std::memcpy(id.internal, part.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&comm_, size_, id, ranks.rank(), &config), "ncclCommInitRankConfig");
    try {
      finish("ncclCommInitRankConfig", options.join_timeout, &ranks);
      stream_ = backend_of(device_).create_stream(device_.index);
    } catch (...) {
      ncclCommAbort(comm_);  // NCCL's thread still waits for the other ranks, and writes to comm_ at its end
      throw;
    }
  }

  ~NcclBackend() override {
    end_abort();
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr || cuda::device_lost(device_.index)) return;
    try {
      ncclCommFinalize(comm_);
      wait(kFarewell);
      ncclCommDestroy(comm_);
    } catch (const std::exception&) {
      ncclCommAbort(comm_);
    }
  }

  void all_reduce(void* data, int64_t count, DType dtype, const Stream& stream) override {
    call("ncclAllReduce", stream, [&] {
      return ncclAllReduce(data, data, static_cast<size_t>(count), nccl_type(dtype), ncclSum, comm_,
                           native(stream));
    });
  }
  void reduce_scatter(const void* from, void* to, int64_t count, DType dtype, const Stream& stream) override {
    call("ncclReduceScatter", stream, [&] {
      return ncclReduceScatter(from, to, static_cast<size_t>(count), nccl_type(dtype), ncclSum, comm_,
                               native(stream));
    });
  }
  void all_gather(const void* from, void* to, size_t bytes, const Stream& stream) override {
    call("ncclAllGather", stream,
         [&] { return ncclAllGather(from, to, bytes, ncclUint8, comm_, native(stream)); });
  }
  void broadcast(void* data, size_t bytes, int root, const Stream& stream) override {
    call("ncclBroadcast", stream,
         [&] { return ncclBroadcast(data, data, bytes, ncclUint8, root, comm_, native(stream)); });
  }

  // Each part is summed from where it lies to its place; NCCL makes one launch of the group.
  void begin_all_reduce(const Communicator::Bucket& bucket, const Stream& stream) override {
    Events& events = begun_[bucket.sums];
    if (!events.begun && !spare_pairs_.empty()) {
      events = std::move(spare_pairs_.back());
      spare_pairs_.pop_back();
    }
    make(events.begun);
    make(events.ended);
    SINTER_CUDA_CHECK_ON(device_.index, cudaEventRecord(events.begun.get(), native(stream)));
    SINTER_CUDA_CHECK_ON(device_.index, cudaStreamWaitEvent(native(stream_), events.begun.get(), 0));
    const size_t size = size_of(bucket.dtype);
    const ncclDataType_t type = nccl_type(bucket.dtype);
    call("ncclAllReduce", stream_, [&] {
      ncclResult_t result = ncclGroupStart();
      for (const Communicator::Part& part : bucket.parts) {
        if (part.count == 0 || (result != ncclSuccess && result != ncclInProgress)) continue;
        result = ncclAllReduce(part.from,
                               static_cast<std::byte*>(bucket.sums) + static_cast<size_t>(part.place) * size,
                               static_cast<size_t>(part.count), type, ncclSum, comm_, native(stream_));
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess || result == ncclInProgress ? ended : result;
    });
    SINTER_CUDA_CHECK_ON(device_.index, cudaEventRecord(events.ended.get(), native(stream_)));
  }

  void end_all_reduce(const void* sums, const Stream& stream) override {
    const auto found = begun_.find(sums);
    SINTER_ASSERT(found != begun_.end(), "[comm] a sum ends that was not begun");
    // The stream has the event's place from here on; the event itself may serve another sum.
    SINTER_CUDA_CHECK_ON(device_.index, cudaStreamWaitEvent(native(stream), found->second.ended.get(), 0));
    spare_pairs_.push_back(std::move(found->second));
    begun_.erase(found);
  }

  // ncclCommAbort frees what runs at once, but returns only when no captured graph has calls of the
  // communicator any more: jobs end after whoever calls this, so nobody may wait for it, nor for the mutex.
  void abort(const std::string& text) noexcept override {
    ncclComm_t comm = nullptr;
    try {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return;
      comm = std::exchange(comm_, nullptr);
      aborted_ = text;
      aborter_ = std::thread([comm, done = abort_is_done_] {
        ncclCommAbort(comm);
        *done = true;
      });
    } catch (...) {  // no memory, or no thread
      if (comm != nullptr) ncclCommAbort(comm);
    }
  }

  Progress progress() override {
    backend_of(device_).make_current(device_.index);  // else CUDA would take another GPU for this thread
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return {};
    }
    const std::lock_guard lock(work_mutex_);
    while (!work_.empty()) {
      const cudaError_t status = cudaEventQuery(work_.front().get());
      if (status == cudaErrorNotReady) break;
      cuda::check(status, "cudaEventQuery", device_.index);
      spare_events_.push_back(std::move(work_.front()));
      work_.pop_front();
      ++progress_.ended;
    }
    return progress_;
  }

  void check_work() override {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, "NCCL, while the GPU works");
  }

  void note_work() override { note_work_on(current_stream(device_)); }

 private:
  struct Events {
    NcclEvent begun, ended;
  };

  void make(NcclEvent& event) const {
    if (event) return;
    const cuda::DeviceGuard guard(device_.index);  // the calling thread may use another GPU
    cudaEvent_t made = nullptr;
    SINTER_CUDA_CHECK_ON(device_.index, cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    event = NcclEvent(made);
  }

  void check(ncclResult_t result, const char* name) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const detail = comm_ != nullptr ? ncclGetLastError(comm_) : "";
    const std::string text =
        fmt::format("{}: {}{}{}", name, ncclGetErrorString(result), *detail != '\0' ? ", " : "", detail);
    // These two come where another rank, or the way to it, has gone.
    if (result == ncclRemoteError || result == ncclSystemError) throw CommunicationError(text);
    throw OwnError(text);
  }

  /// Puts an event behind what is on the stream. What is captured runs later, and is noted then.
  void note_work_on(const Stream& stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    SINTER_CUDA_CHECK_ON(device_.index, cudaStreamIsCapturing(native(stream), &capture));
    if (capture != cudaStreamCaptureStatusNone) return;
    const std::lock_guard lock(work_mutex_);
    if (work_.size() < kMostWork) {
      NcclEvent event;
      if (!spare_events_.empty()) {
        event = std::move(spare_events_.back());
        spare_events_.pop_back();
      }
      make(event);
      work_.push_back(std::move(event));
      ++progress_.queued;
    }  // else the last piece grows
    SINTER_CUDA_CHECK_ON(device_.index, cudaEventRecord(work_.back().get(), native(stream)));
  }

  template <class F>
  void call(const char* name, const Stream& stream, const F& f) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) throw CommunicationError(aborted_);
      check(f(), name);
    }
    finish(name, timeout_);
    note_work_on(stream);
  }

  /// Waits until NCCL has taken the calls before; not for the device. Until the ranks are connected nobody
  /// aborts a wait for one that is lost: `ranks` says so.
  void finish(const char* name, double timeout, const RankWatch* ranks = nullptr) {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (comm_ == nullptr) throw CommunicationError(aborted_);
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
        check(state, name);
        if (state == ncclSuccess) return;
      }
      if (const auto lost = ranks != nullptr ? ranks->failure() : std::nullopt)
        throw CommunicationError(*lost);
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      if (waited.count() > timeout) throw_error<LateError>("{}: no answer within {} s", name, timeout);
      std::this_thread::sleep_for(kPoll);
    }
  }

  /// The same with the mutex held, before the end.
  void wait(double timeout) {
    const auto start = std::chrono::steady_clock::now();
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      if (waited.count() > timeout) throw CommunicationError("ncclCommFinalize: no answer");
      if (state == ncclInProgress) std::this_thread::sleep_for(kPoll);
    }
    check(state, "ncclCommFinalize");
  }

  /// Waits for ncclCommAbort, but not for ever: where connections have broken it may not return.
  void end_abort() {
    if (!aborter_.joinable()) return;
    const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> limit(cuda::device_lost(device_.index) ? 0.0 : kFarewell);
    while (!*abort_is_done_ && std::chrono::steady_clock::now() - start < limit)
      std::this_thread::sleep_for(kPoll);
    *abort_is_done_ ? aborter_.join() : aborter_.detach();
  }

  const Device device_;
  const double timeout_;
  const int size_;
  Stream stream_;
  std::map<const void*, Events> begun_;  // by the sums that they are of, which have not ended
  std::vector<Events> spare_pairs_;
  std::mutex work_mutex_;       // guards what follows
  std::deque<NcclEvent> work_;  // that has not ended
  std::vector<NcclEvent> spare_events_;
  Progress progress_;
  std::mutex mutex_;           // guards what follows
  ncclComm_t comm_ = nullptr;  // null: aborted
  std::string aborted_;
  std::thread aborter_;
  std::shared_ptr<std::atomic<bool>> abort_is_done_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

std::unique_ptr<CollectiveBackend> make_nccl_backend(RankWatch& ranks, const CommunicatorOptions& options) {
  return std::make_unique<NcclBackend>(ranks, options);
}

}  // namespace sinter::comm
