#include <map>
#include <mutex>
#include <vector>

#include <sinter/core/cuda/cuda_backend.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>

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
    SINTER_CUDA_CHECK(cudaStreamCreateWithFlags(&default_stream, cudaStreamNonBlocking));
  }

  CudaMemory memory;
  MemoryPool pool;
  PinnedMemory pinned;
  MemoryPool pinned_pool;
  cudaStream_t default_stream = nullptr;
  std::mutex mutex;
  std::map<StreamId, std::unique_ptr<Workspace>> workspaces;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend() {
    const cudaError_t status = cudaGetDeviceCount(&count_);
    if (status == cudaSuccess && count_ > 0) {
      states_.resize(static_cast<size_t>(count_));
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

  MemoryPool& memory_pool(int index) override { return state(index).pool; }
  MemoryPool& pinned_pool(int index) override { return state(index).pinned_pool; }
  RawMemory& raw_memory(int index) override { return state(index).memory; }
  Stream default_stream(int index) override { return as_stream(index, state(index).default_stream); }

  Stream create_stream(int index) override {
    const DeviceGuard guard(index);
    cudaStream_t stream = nullptr;
    SINTER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return as_stream(index, stream);
  }

  Workspace& workspace(const Stream& stream) override {
    GpuState& gpu = state(stream.device.index);
    const std::lock_guard lock(gpu.mutex);
    auto& workspace = gpu.workspaces[stream.id];
    if (workspace == nullptr) workspace = std::make_unique<Workspace>(gpu.pool, stream.id);
    return *workspace;
  }

  void synchronize(const Stream& stream) override {
    SINTER_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.native)));
  }

  void stream_wait(const Stream& stream, void* event) override {
    const DeviceGuard guard(stream.device.index);
    SINTER_CUDA_CHECK(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.native),
                                          static_cast<cudaEvent_t>(event), cudaEventWaitDefault));
  }

  void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
            const Stream& stream) override {
    const DeviceGuard guard(stream.device.index);
    const auto native = static_cast<cudaStream_t>(stream.native);
    if (to_device.is_cuda() && from_device.is_cuda() && to_device != from_device) {
      SINTER_CUDA_CHECK(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, native));
      return;
    }
    SINTER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native));
    // Pageable memory is staged by the driver: the call may return before the host side is done with it.
    if (is_pageable(to_device.is_cpu() ? to : from_device.is_cpu() ? from : nullptr)) synchronize(stream);
  }

 private:
  static Stream as_stream(int index, cudaStream_t stream) {
    return {Device::cuda(index), reinterpret_cast<StreamId>(stream), stream};
  }

  static bool is_pageable(const void* host) {
    if (host == nullptr) return false;
    cudaPointerAttributes attributes{};
    SINTER_CUDA_CHECK(cudaPointerGetAttributes(&attributes, host));
    return attributes.type == cudaMemoryTypeUnregistered;
  }

  GpuState& state(int index) {
    const std::lock_guard lock(mutex_);
    auto& state = states_[static_cast<size_t>(index)];
    if (state == nullptr) state = std::make_unique<GpuState>(index);
    return *state;
  }

  int count_ = 0;
  std::string reason_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GpuState>> states_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() {
  return std::make_unique<CudaBackend>();
}

}  // namespace sinter
