// How many blocks of a kernel a GPU holds at a time. For .cu files.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <cuda_runtime.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {

/// The driver's answer for one kernel and number of threads, asked once for each of the first 64 devices: a
/// static of the function that launches the kernel. Threads may share it.
class ResidentBlocks {
 public:
  /// Blocks of `kernel`, the same in every call, without dynamic shared memory, that all processors of
  /// `device`, which is the current one, hold at a time; at least one each.
  template <class Kernel>
  int64_t of(Kernel* kernel, int device, int threads) {
    int per_processor = device < kDevices ? known_[device].load(std::memory_order_relaxed) : 0;
    if (per_processor == 0) {
      check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, threads, 0),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
      per_processor = std::max(per_processor, 1);
      if (device < kDevices) known_[device].store(per_processor, std::memory_order_relaxed);
    }
    return int64_t{device_traits(device).processors} * per_processor;
  }

 private:
  static constexpr int kDevices = 64;
  std::atomic<int> known_[kDevices] = {};  // per processor; 0: not asked yet
};

}  // namespace sinter::cuda
