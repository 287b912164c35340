// Division of indices by numbers that are fixed for a launch, for kernels that exist for 32-bit and for
// 64-bit indices. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>

namespace sinter::ops {

/// Index: int64_t, or uint32_t (divisors up to 2^31) for the fast form.
template <class Index>
class IndexDivide {
 public:
  IndexDivide() = default;
  explicit IndexDivide(int64_t divisor) : divisor_(divisor) {}

  SINTER_HOST_DEVICE Index divide(Index n) const { return n / divisor_; }
  /// Quotient and remainder at once.
  SINTER_HOST_DEVICE Index divide(Index n, Index& remainder) const {
    const Index quotient = n / divisor_;
    remainder = n - quotient * divisor_;
    return quotient;
  }

 private:
  Index divisor_ = 1;
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
