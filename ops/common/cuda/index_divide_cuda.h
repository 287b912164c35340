// Division of indices by numbers that are fixed for a launch, for kernels that exist for 32-bit and for
// 64-bit indices. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>

namespace sinter::ops {

/// Index: int64_t, or uint32_t (divisors up to 2^31), which needs no look at the numbers.
template <class Index>
class IndexDivide;

template <>
class IndexDivide<int64_t> : public cuda::WideDivide {
 public:
  IndexDivide() = default;
  explicit IndexDivide(int64_t divisor) : cuda::WideDivide(divisor) {}

  using cuda::WideDivide::divide;
  SINTER_HOST_DEVICE int64_t divide(int64_t n) const {
    int64_t remainder;
    return cuda::WideDivide::divide(n, remainder);
  }
};

template <>
class IndexDivide<uint32_t> : public cuda::FastDivide {
 public:
  IndexDivide() = default;
  explicit IndexDivide(int64_t divisor) : cuda::FastDivide(static_cast<uint32_t>(divisor)) {}
};

/// Calls function.operator()<Index>() with the narrowest index type for tensors of up to `count` elements.
template <class F>
decltype(auto) dispatch_index(int64_t count, F&& function) {
  if (count <= INT32_MAX) return function.template operator()<uint32_t>();
  return function.template operator()<int64_t>();
}

}  // namespace sinter::ops
