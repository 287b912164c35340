// The maths of the reductions, for every backend: where each starts, and how two partial results become one.
#pragma once

#include <limits>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

struct SumReducer {
  template <class A>
  SINTER_HOST_DEVICE static A identity() {
    return A{0};
  }
  template <class A>
  SINTER_HOST_DEVICE static A combine(A a, A b) {
    return a + b;
  }
};

struct MaxReducer {
  template <class A>
  SINTER_HOST_DEVICE static A identity() {
    if constexpr (std::numeric_limits<A>::has_infinity) {
      return -std::numeric_limits<A>::infinity();
    } else {
      return std::numeric_limits<A>::lowest();
    }
  }
  template <class A>
  SINTER_HOST_DEVICE static A combine(A a, A b) {
#if defined(__CUDA_ARCH__)
    return b > a || b != b ? b : a;  // one comparison
#else
    const A extreme = b > a ? b : a;  // two selections, which compilers vectorise; || they do not always
    return b != b ? b : extreme;
#endif
  }
  /// Whether `candidate`, which comes later, replaces `best`: the first of equals stays, and so does the
  /// first NaN.
  template <class A>
  SINTER_HOST_DEVICE static bool replaces(A candidate, A best) {
    return candidate > best || (candidate != candidate && best == best);
  }
};

struct MinReducer {
  template <class A>
  SINTER_HOST_DEVICE static A identity() {
    if constexpr (std::numeric_limits<A>::has_infinity) {
      return std::numeric_limits<A>::infinity();
    } else {
      return std::numeric_limits<A>::max();
    }
  }
  template <class A>
  SINTER_HOST_DEVICE static A combine(A a, A b) {
#if defined(__CUDA_ARCH__)
    return b < a || b != b ? b : a;  // one comparison
#else
    const A extreme = b < a ? b : a;  // two selections, which compilers vectorise; || they do not always
    return b != b ? b : extreme;
#endif
  }
  template <class A>
  SINTER_HOST_DEVICE static bool replaces(A candidate, A best) {
    return candidate < best || (candidate != candidate && best == best);
  }
};

}  // namespace sinter::ops
