#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/unique_handle.h>

namespace sinter::cuda {
namespace {

using OwnedStream = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using OwnedGraph = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
using OwnedExecutable = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

// ---- which captures are in progress

constexpr size_t kMostOfThread = 16;

/// Those of a thread. Without a destructor: tensors ask that end when the thread's variables have ended.
struct CapturedStreams {
  std::array<cudaStream_t, kMostOfThread> streams{};
  size_t count = 0;

  bool contain(cudaStream_t stream) const {
    return std::find(streams.begin(), streams.begin() + count, stream) != streams.begin() + count;
  }
  void add(cudaStream_t stream) {
    if (count == kMostOfThread) {
      throw_error<Unsupported>("[cuda] a thread can capture {} streams at once, no more", kMostOfThread);
    }
    streams[count++] = stream;
  }
  void remove(cudaStream_t stream) {
    count =
        static_cast<size_t>(std::remove(streams.begin(), streams.begin() + count, stream) - streams.begin());
  }
};

thread_local CapturedStreams captured_streams;

/// The number of those of all threads, and the lock under which it changes.
struct Captures {
  std::mutex mutex;
  int count = 0;

  static Captures& instance() {
    static auto& captures = *new Captures;  // threads may outlive statics
    return captures;
  }
};

/// Counts a capture and remembers its stream.
class CountedCapture {
 public:
  explicit CountedCapture(cudaStream_t stream) : stream_(stream) {
    captured_streams.add(stream);
    const std::lock_guard lock(Captures::instance().mutex);
    ++Captures::instance().count;
  }
  ~CountedCapture() {
    captured_streams.remove(stream_);
    const std::lock_guard lock(Captures::instance().mutex);
    --Captures::instance().count;
  }
  CountedCapture(const CountedCapture&) = delete;
  CountedCapture& operator=(const CountedCapture&) = delete;

 private:
  cudaStream_t stream_;
};

/// Bars a stream from a pool.
class Barred {
 public:
  Barred(MemoryPool& pool, StreamId stream) : pool_(pool), stream_(stream) { pool.bar_stream(stream); }
  ~Barred() { pool_.admit_stream(stream_); }
  Barred(const Barred&) = delete;
  Barred& operator=(const Barred&) = delete;

 private:
  MemoryPool& pool_;
  StreamId stream_;
};

// ---- captured work

class CudaGraph final : public CapturedWork {
 public:
  CudaGraph(int device, OwnedExecutable executable, size_t node_count)
      : device_(device), executable_(std::move(executable)), node_count_(node_count) {}
  ~CudaGraph() override {
    const UncapturedCalls uncaptured;  // where it ends inside another capture
    executable_ = OwnedExecutable();
  }

  void launch(const Stream& stream) override {
    SINTER_CHECK(stream.device == Device::cuda(device_),
                 "[cuda] work that was captured on {} cannot be launched on a stream of {}",
                 Device::cuda(device_), stream.device);
    const DeviceGuard guard(device_);
    SINTER_CUDA_CHECK(cudaGraphLaunch(executable_.get(), static_cast<cudaStream_t>(stream.native)));
  }

  size_t node_count() const override { return node_count_; }

 private:
  int device_;
  OwnedExecutable executable_;  // CUDA ends it after a launch that is under way
  size_t node_count_;
};

OwnedStream make_stream(int device) {
  const DeviceGuard guard(device);
  const UncapturedCalls uncaptured;
  cudaStream_t stream = nullptr;
  SINTER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnedStream(stream);
}

OwnedExecutable instantiate(const OwnedGraph& graph) {
  cudaGraphExec_t executable = nullptr;
  SINTER_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  return OwnedExecutable(executable);
}

class GraphCapture final : public StreamCapture {
 public:
  GraphCapture(int device, MemoryPool& pool, MemoryPool& pinned_pool)
      : pool_(pool),
        owned_stream_(make_stream(device)),
        stream_{Device::cuda(device), reinterpret_cast<StreamId>(native()), native()},
        progress_(std::in_place, native(), pool, pinned_pool) {
    SINTER_CUDA_CHECK_ON(device, cudaStreamBeginCapture(native(), cudaStreamCaptureModeThreadLocal));
  }

  ~GraphCapture() override {
    if (progress_) stop(nullptr);
  }

  const Stream& stream() const override { return stream_; }

  std::shared_ptr<CapturedWork> end() override {
    OwnedGraph graph;
    check(stop(&graph), "cudaStreamEndCapture", stream_.device.index);
    const DeviceGuard guard(stream_.device.index);
    const UncapturedCalls uncaptured;  // this capture may lie inside another
    size_t nodes = 0;
    SINTER_CUDA_CHECK(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
    OwnedExecutable executable;
    try {
      executable = instantiate(graph);
      upload(executable);
    } catch (const OutOfMemory&) {  // the pool may hold what it does not need
      executable = OwnedExecutable();
      pool_.trim();
      executable = instantiate(graph);
      upload(executable);
    }
    return std::make_shared<CudaGraph>(stream_.device.index, std::move(executable), nodes);
  }

 private:
  /// What holds until the capture has ended.
  struct Progress {
    CountedCapture counted;
    Barred of_pool, of_pinned;

    Progress(cudaStream_t stream, MemoryPool& pool, MemoryPool& pinned_pool)
        : counted(stream),
          of_pool(pool, reinterpret_cast<StreamId>(stream)),
          of_pinned(pinned_pool, reinterpret_cast<StreamId>(stream)) {}
  };

  cudaStream_t native() const { return owned_stream_.get(); }

  /// Ends the capture, broken or not: afterwards the stream is like any other.
  cudaError_t stop(OwnedGraph* result) {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(native(), &graph);
    OwnedGraph owner(graph);
    progress_.reset();
    if (result != nullptr) {
      *result = std::move(owner);
    } else if (status != cudaSuccess) {
      cudaGetLastError();  // of a capture that nobody wants
    }
    return status;
  }

  /// Puts it on the device, so that its first launch takes no longer than the others.
  void upload(const OwnedExecutable& executable) {
    SINTER_CUDA_CHECK(cudaGraphUpload(executable.get(), native()));
    SINTER_CUDA_CHECK(cudaStreamSynchronize(native()));
  }

  MemoryPool& pool_;
  OwnedStream owned_stream_;
  Stream stream_;
  std::optional<Progress> progress_;
};

}  // namespace

std::unique_ptr<StreamCapture> begin_graph_capture(int device, MemoryPool& pool, MemoryPool& pinned_pool) {
  return std::make_unique<GraphCapture>(device, pool, pinned_pool);
}

bool is_captured(cudaStream_t stream) {
  return captured_streams.contain(stream);
}

void expect_not_captured(cudaStream_t stream, const char* what) {
  if (!is_captured(stream)) [[likely]]
    return;
  throw_error<Unsupported>(
      "[cuda] {}: the stream is being captured; captured work can wait neither for the "
      "host nor for other streams, nor can they wait for it",
      what);
}

bool synchronize_device(int device) {
  Captures& captures = Captures::instance();
  const std::lock_guard lock(captures.mutex);  // a capture that is about to begin waits
  if (captures.count > 0) return false;
  const DeviceGuard guard(device);
  SINTER_CUDA_CHECK(cudaDeviceSynchronize());
  return true;
}

UncapturedCalls::UncapturedCalls() noexcept {
  if (captured_streams.count == 0) [[likely]]
    return;
  exchanged_ = cudaThreadExchangeStreamCaptureMode(&previous_) == cudaSuccess;
}

UncapturedCalls::~UncapturedCalls() {
  if (exchanged_) cudaThreadExchangeStreamCaptureMode(&previous_);
}

}  // namespace sinter::cuda
