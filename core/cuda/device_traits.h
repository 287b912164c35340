// What kernels' plans depend on in a GPU.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sinter::cuda {

struct DeviceTraits {
  int processors = 1;  ///< streaming multiprocessors
  /// Shared memory: the most of a block, if the kernel's attribute allows it; of a processor; and what that
  /// keeps back for each block.
  size_t most_shared_bytes = 0, shared_bytes = 0, reserved_shared_bytes = 0;
  size_t l2_bytes = 0;
  double dram_bytes_per_us = 1e6;  ///< as memory_bandwidth() has it
  bool cooperative = false;        ///< blocks of a launch can wait for each other (launch_cooperative.h)
  bool early_launch = false;       ///< a kernel can be set up while the one before it runs (launch_early.h)

  /// The most shared memory of a block that shares its processor with `count` - 1 others like it.
  size_t shared_of_block(size_t count) const {
    return std::min(most_shared_bytes, (shared_bytes / count - reserved_shared_bytes) / 128 * 128);
  }
};

/// Bytes in a microsecond between a GPU and its memory: two transfers in each cycle of its clock, in kHz,
/// over a bus of so many bits. Of drivers that do not tell the clock, a guess: 1 TB/s.
constexpr double memory_bandwidth(int clock_khz, int bus_bits) {
  if (clock_khz <= 0 || bus_bits <= 0) return 1e6;
  return 2.0 * clock_khz * (bus_bits / 8.0) / 1000.0;
}

/// Whether kernels can be launched early on a GPU of compute capability `capability` (90 is 9.0) with code
/// that was compiled for `compiled` (90 is __CUDA_ARCH__ == 900). Kernels leave out what their GPU lacks by
/// __CUDA_ARCH__, so that it takes both: code for 80 runs on a 90, without waiting for a kernel before it.
constexpr bool can_launch_early(int capability, int compiled) {
  return capability >= 90 && compiled >= 90;
}

/// What the kernels that `device` runs were compiled for: the virtual architecture, 90 if __CUDA_ARCH__ is
/// 900, wherever the driver has compiled them further.
int compiled_architecture(int device);

/// Asked from the driver once for each device.
const DeviceTraits& device_traits(int device);

}  // namespace sinter::cuda
