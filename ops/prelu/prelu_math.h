// The arithmetic of PReLU, for every device: forward beside derivative.
#pragma once

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

template <class C>
SINTER_HOST_DEVICE C prelu_value(C x, C alpha) {
  return x > C{0} ? x : alpha * x;
}

/// dy with respect to x.
template <class C>
SINTER_HOST_DEVICE C prelu_slope(C x, C alpha, C dy) {
  return x > C{0} ? dy : alpha * dy;
}

/// dy with respect to alpha.
template <class C>
SINTER_HOST_DEVICE C prelu_alpha_slope(C x, C dy) {
  return x > C{0} ? C{0} : x * dy;
}

}  // namespace sinter::ops
