// The rectified linear unit and its derivative, for every device.
#pragma once

#include <sinter/core/runtime/random.h>  // SINTER_HOST_DEVICE

namespace sinter::ops {

struct Relu {
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return x > C{0} || x != x ? x : C{0};
  }
};

struct ReluGrad {
  template <class C>
  SINTER_HOST_DEVICE C operator()(C y, C dy) const {
    return y > C{0} ? dy : C{0};
  }
};

}  // namespace sinter::ops
