// Values that a loop shall find in registers. For host and device.
#pragma once

#include <sinter/core/base/host_device.h>

namespace sinter::cuda {

/// Keeps an integer of 4 or 8 bytes in a register: the compiler would rather compute it anew in every round
/// of a loop.
template <class V>
SINTER_HOST_DEVICE inline V in_register(V value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(V) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
#endif
  return value;
}

}  // namespace sinter::cuda
