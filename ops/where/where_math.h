// The choice of one element, for every backend. Elements are moved as they are: see
// ops/common/element_bits.h.
#pragma once

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

struct Choose {
  template <class T>
  SINTER_HOST_DEVICE T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

}  // namespace sinter::ops
