// The choice of one element, for every backend. Elements are moved as they are, so one type of each size does
// for all dtypes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

struct Choose {
  template <class T>
  SINTER_HOST_DEVICE T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

/// Calls `function.operator()<T>()` with the unsigned integer of that many bytes.
template <class F>
void dispatch_bytes(size_t bytes, F&& function) {
  switch (bytes) {
    case 1:
      return function.template operator()<uint8_t>();
    case 2:
      return function.template operator()<uint16_t>();
    case 4:
      return function.template operator()<uint32_t>();
    default:
      return function.template operator()<uint64_t>();
  }
}

}  // namespace sinter::ops
