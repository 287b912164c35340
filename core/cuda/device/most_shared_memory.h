// Kernels that take more dynamic shared memory than a launch may have unasked (48 KB). For .cu files.
#pragma once

#include <atomic>
#include <cstdint>

#include <cuda_runtime.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {

/// Which devices let one kernel have as much dynamic shared memory as they have: a static of the function
/// that launches it. Threads may share it.
class MostSharedMemory {
 public:
  /// Lets `kernel`, the same in every call, have the most that `device` has beside the kernel's own static
  /// arrays. That much for every plan: a thread must not take away what another is about to launch with.
  template <class Kernel>
  void allow(Kernel* kernel, int device) {
    const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
    if ((allowed_.load(std::memory_order_acquire) & bit) != 0) return;
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
    check(cudaFuncSetAttribute(
              kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
              static_cast<int>(device_traits(device).most_shared_bytes - attributes.sharedSizeBytes)),
          "cudaFuncSetAttribute");
    allowed_.fetch_or(bit, std::memory_order_release);
  }

 private:
  std::atomic<uint64_t> allowed_ = 0;  // bit i: on device i
};

}  // namespace sinter::cuda
