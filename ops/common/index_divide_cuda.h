// Division of indices by numbers that are fixed for a launch, for kernels that exist for 32-bit and for
// 64-bit indices. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/core/cuda/fast_divide.h>

namespace sinter::ops {

/// Index: uint32_t (divisors up to 2^31) or int64_t.
template <class Index>
class IndexDivide;

template <>
class IndexDivide<uint32_t> : public cuda::FastDivide {
 public:
  using cuda::FastDivide::FastDivide;
};

template <>
class IndexDivide<int64_t> {
 public:
  IndexDivide() = default;
  explicit IndexDivide(int64_t divisor) : divisor_(divisor) {}

  SINTER_HOST_DEVICE int64_t divide(int64_t n) const { return n / divisor_; }
  SINTER_HOST_DEVICE int64_t divide(int64_t n, int64_t& remainder) const {
    const int64_t quotient = n / divisor_;
    remainder = n - quotient * divisor_;
    return quotient;
  }

 private:
  int64_t divisor_ = 1;
};

/// Calls function.operator()<Index>() with the narrowest index type for tensors of up to `count` elements.
template <class F>
decltype(auto) dispatch_index(int64_t count, F&& function) {
  if (count <= INT32_MAX) return function.template operator()<uint32_t>();
  return function.template operator()<int64_t>();
}

}  // namespace sinter::ops
