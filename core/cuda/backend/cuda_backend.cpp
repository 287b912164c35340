#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include <nvtx3/nvToolsExt.h>

#include <sinter/core/cuda/backend/cuda_backend.h>
#include <sinter/core/cuda/cublaslt/cublaslt_matmul.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/cuda/stream_events.h>
#include <sinter/core/cuda/unique_handle.h>

namespace sinter {
namespace {

using cuda::CudaMemory;
using cuda::DeviceGuard;
using cuda::PinnedMemory;

/// "13.0" of the number 13000 that CUDA uses.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// What one GPU has in this process. Made at its first use.
struct GpuState {
  explicit GpuState(int index)
      : memory(index),
        pool(memory, {.mode = pool_mode_from_environment(), .byte_limit = {}}),
        pinned(index),
        pinned_pool(pinned, {.mode = pool_mode_from_environment(), .byte_limit = {}}) {
    const DeviceGuard guard(index);
    cudaStream_t stream = nullptr;
    SINTER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    default_stream = as_stream(index, stream);
    default_workspace = std::make_unique<Workspace>(pool, default_stream.id);
  }

  Workspace& workspace(StreamId stream) {
    if (stream == default_stream.id) return *default_workspace;  // nearly always, and without a lock
    const std::lock_guard lock(mutex);
    auto& workspace = other_workspaces[stream];
    if (workspace == nullptr) workspace = std::make_unique<Workspace>(pool, stream);
    return *workspace;
  }

  static Stream as_stream(int index, cudaStream_t stream) {
    return {Device::cuda(index), reinterpret_cast<StreamId>(stream), stream};
  }

  CudaMemory memory;
  MemoryPool pool;
  PinnedMemory pinned;
  MemoryPool pinned_pool;
  Stream default_stream;
  std::unique_ptr<Workspace> default_workspace;
  std::mutex mutex;
  std::map<StreamId, std::unique_ptr<Workspace>> other_workspaces;
};

class CudaTimeMark final : public TimeMark {
 public:
  explicit CudaTimeMark(const Stream& stream) : device_(stream.device.index) {
    cuda::expect_not_captured(static_cast<cudaStream_t>(stream.native), "mark_time");
    const DeviceGuard guard(stream.device.index);
    cudaEvent_t event = nullptr;
    SINTER_CUDA_CHECK(cudaEventCreate(&event));
    event_ = OwnedEvent(event);
    SINTER_CUDA_CHECK(cudaEventRecord(event, static_cast<cudaStream_t>(stream.native)));
  }

  double microseconds_since(const TimeMark& earlier) const override {
    const auto& start = static_cast<const CudaTimeMark&>(earlier);
    const cuda::UncapturedCalls uncaptured;
    float milliseconds = 0;
    SINTER_CUDA_CHECK_ON(device_, cudaEventSynchronize(start.event_.get()));
    SINTER_CUDA_CHECK_ON(device_, cudaEventSynchronize(event_.get()));
    SINTER_CUDA_CHECK_ON(device_, cudaEventElapsedTime(&milliseconds, start.event_.get(), event_.get()));
    return double{milliseconds} * 1000.0;
  }

 private:
  using OwnedEvent = cuda::UniqueHandle<cudaEvent_t, cudaEventDestroy>;
  int device_;
  OwnedEvent event_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend() {
    // Streams share this many queues of the device, 8 if nobody says more. What is on one of two that share a
    // queue waits for all that was queued on the other before, as decoding would for a whole training step.
    // The driver reads it once, when it is first called.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    const cudaError_t status = cudaGetDeviceCount(&count_);
    if (status == cudaSuccess && count_ > 0) {
      states_ = std::make_unique<std::atomic<GpuState*>[]>(static_cast<size_t>(count_));
      return;
    }
    cudaGetLastError();
    count_ = 0;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) {
      reason_ = fmt::format("no NVIDIA driver is installed (this build needs one for CUDA {} or later)",
                            version_text(CUDART_VERSION / 1000 * 1000));
    } else if (status == cudaErrorInsufficientDriver) {
      reason_ = fmt::format("the NVIDIA driver supports CUDA {} but this build needs {} or later",
                            version_text(driver), version_text(CUDART_VERSION / 1000 * 1000));
    } else {
      reason_ = fmt::format("the NVIDIA driver found no usable GPU ({})", cudaGetErrorString(status));
    }
  }

  DeviceType type() const override { return DeviceType::kCuda; }
  int device_count() override { return count_; }
  std::string unavailable_reason() override { return reason_; }

  std::string describe(int index) override {
    cudaDeviceProp properties{};
    SINTER_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    return fmt::format("cuda:{}: {}, {} GiB memory, compute capability {}.{}", index, properties.name,
                       properties.totalGlobalMem >> 30, properties.major, properties.minor);
  }

  std::string signature(int index) override {
    cudaDeviceProp properties{};
    SINTER_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    int driver = 0;
    SINTER_CUDA_CHECK(cudaDriverGetVersion(&driver));
    return fmt::format("{} driver {} cublaslt {}", properties.name, version_text(driver),
                       cuda::cublaslt_version());
  }
  size_t cache_bytes(int index) override { return cuda::device_traits(index).l2_bytes; }

  void make_current(int index) override {
    if (count_ > 1) cuda::make_current(index);  // a thread begins with GPU 0
  }

  MemoryPool& memory_pool(int index) override { return state(index).pool; }
  MemoryPool& pinned_pool(int index) override { return state(index).pinned_pool; }
  RawMemory& raw_memory(int index) override { return state(index).memory; }
  Stream default_stream(int index) override { return state(index).default_stream; }

  Stream create_stream(int index) override {
    const DeviceGuard guard(index);
    cudaStream_t stream = nullptr;
    SINTER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return GpuState::as_stream(index, stream);
  }

  Workspace& workspace(const Stream& stream) override {
    return state(stream.device.index).workspace(stream.id);
  }

  void synchronize(const Stream& stream) override {
    cuda::expect_not_captured(static_cast<cudaStream_t>(stream.native), "synchronize");
    const cuda::UncapturedCalls uncaptured;
    SINTER_CUDA_CHECK_ON(stream.device.index,
                         cudaStreamSynchronize(static_cast<cudaStream_t>(stream.native)));
  }

  bool wait_until_idle(int index) override { return cuda::synchronize_device(index); }

  void stream_wait(const Stream& stream, void* event) override {
    cuda::expect_not_captured(static_cast<cudaStream_t>(stream.native), "stream_wait");
    const DeviceGuard guard(stream.device.index);
    const auto& awaited = *static_cast<const cuda::StreamEvent*>(event);
    const int device = cuda::device_lost(awaited.device) ? awaited.device : stream.device.index;
    SINTER_CUDA_CHECK_ON(device, cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.native), awaited.native,
                                                     cudaEventWaitDefault));
  }

  void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
            const Stream& stream) override {
    const DeviceGuard guard(stream.device.index);
    const auto native = static_cast<cudaStream_t>(stream.native);
    if (to_device.is_cuda() && from_device.is_cuda() && to_device != from_device) {
      SINTER_CUDA_CHECK(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, native));
      return;
    }
    // Pageable memory is staged by the driver: the call may return before the host side is done with it.
    const bool pageable = is_pageable(to_device.is_cpu() ? to : from_device.is_cpu() ? from : nullptr);
    if (pageable) cuda::expect_not_captured(native, "a copy from or to memory that is not pinned");
    SINTER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native));
    if (pageable) synchronize(stream);
  }

  bool can_capture() const override { return true; }
  std::unique_ptr<StreamCapture> begin_capture(int index) override {
    GpuState& gpu = state(index);
    return cuda::begin_graph_capture(index, gpu.pool, gpu.pinned_pool);
  }

  std::unique_ptr<TimeMark> mark_time(const Stream& stream) override {
    return std::make_unique<CudaTimeMark>(stream);
  }

  // Always on: without a profiler each is a call through a pointer that says so.
  void push_range(const char* name) override { nvtxRangePushA(name); }
  void pop_range() noexcept override { nvtxRangePop(); }

 private:
  static bool is_pageable(const void* host) {
    if (host == nullptr) return false;
    cudaPointerAttributes attributes{};
    SINTER_CUDA_CHECK(cudaPointerGetAttributes(&attributes, host));
    return attributes.type == cudaMemoryTypeUnregistered;
  }

  GpuState& state(int index) {
    std::atomic<GpuState*>& state = states_[static_cast<size_t>(index)];
    if (GpuState* const made = state.load(std::memory_order_acquire)) return *made;
    const std::lock_guard lock(mutex_);
    if (state.load(std::memory_order_relaxed) == nullptr) {
      state.store(new GpuState(index), std::memory_order_release);
    }
    return *state.load(std::memory_order_relaxed);
  }

  int count_ = 0;
  std::string reason_;
  std::mutex mutex_;                                  // of the making of states
  std::unique_ptr<std::atomic<GpuState*>[]> states_;  // by index; never destroyed, like the backend
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() {
  return std::make_unique<CudaBackend>();
}

}  // namespace sinter
