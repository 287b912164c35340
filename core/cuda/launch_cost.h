// What a kernel takes, as far as its shape tells: for Kernel::microseconds. Host code without devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {

/// The work of one call that is bound by memory.
struct LaunchCost {
  int launches = 1;
  double bytes = 0;            ///< that all of it reads and writes
  int64_t blocks = 0;          ///< of equal parts of the bytes; 0: enough for any GPU
  int64_t blocks_at_once = 1;  ///< on a multiprocessor
  bool split_k = false;        ///< partial sums are added by a second stage
};

/// An estimate: a wave that is not full takes as long as a full one, since a multiprocessor alone has no more
/// than its share of the bandwidth. The constants are those of a launch and of a second stage behind it,
/// which hardly differ from GPU to GPU.
inline double estimated_microseconds(const LaunchCost& cost, const DeviceTraits& traits) {
  constexpr double kLaunch = 2.8, kSecondStage = 2.5;
  double bytes = cost.bytes;
  if (cost.blocks > 0) {
    const auto wave = static_cast<double>(traits.processors * cost.blocks_at_once);
    const auto blocks = static_cast<double>(cost.blocks);
    bytes *= std::ceil(blocks / wave) * wave / blocks;
  }
  return cost.launches * kLaunch + bytes / traits.dram_bytes_per_us + (cost.split_k ? kSecondStage : 0.0);
}

}  // namespace sinter::cuda
