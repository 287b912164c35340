// Times of GPU work, on a stream of its own and out of a cold L2 cache, as work in a training step finds it.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/unique_handle.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Its memory comes from the device and not from the pool, and goes back there with the timer: nothing stays
/// cached.
class KernelTimer {
 public:
  /// Waits until the device is idle. Throws OutOfMemory if there is no room to flush the cache, and
  /// Unsupported while any thread captures work: CUDA then lets nobody wait for a device.
  explicit KernelTimer(int device);
  ~KernelTimer();
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;

  const Stream& stream() const { return stream_; }

  /// Memory of the timer's device until the timer ends, filled with values that are finite and not zero in
  /// every floating-point dtype: on zeros a GPU draws less power and runs faster. Zero bytes give nullptr.
  /// Throws OutOfMemory.
  void* scratch(size_t bytes);

  /// Microseconds of the work that `queue` puts on stream(): median_time() of runs after one that warms up.
  double measure(const std::function<void()>& queue,
                 double hopeless = std::numeric_limits<double>::infinity());

 private:
  struct Free {
    CudaMemory* memory;
    void operator()(void* block) const noexcept { memory->deallocate(block); }
  };
  using Block = std::unique_ptr<void, Free>;
  using OwnedStream = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
  using OwnedEvent = UniqueHandle<cudaEvent_t, cudaEventDestroy>;

  Block allocate(size_t bytes);

  DeviceGuard guard_;
  CudaMemory memory_;
  OwnedStream owned_stream_;
  Stream stream_;
  OwnedEvent start_, stop_;
  std::vector<Block> blocks_;
  size_t flush_bytes_ = 0;
  void* flush_ = nullptr;
};

}  // namespace sinter::cuda
