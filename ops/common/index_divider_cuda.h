// Division of flat indices by extents: by multiplication where 32 bits are enough, else the 64-bit
// instruction. For .cu files.
#pragma once

#include <cstdint>
#include <limits>

#include <sinter/core/cuda/fast_divide.h>

namespace sinter::ops {

/// Index: uint32_t for counts up to 2^31 - 1, else uint64_t.
template <class Index>
class IndexDivider;

template <>
class IndexDivider<uint32_t> {
 public:
  IndexDivider() = default;
  explicit IndexDivider(int64_t divisor) : divide_(static_cast<uint32_t>(divisor)) {}
  /// Quotient and remainder at once.
  __device__ __forceinline__ uint32_t divide(uint32_t n, uint32_t& remainder) const {
    return divide_.divide(n, remainder);
  }

 private:
  cuda::FastDivide divide_;
};

template <>
class IndexDivider<uint64_t> {
 public:
  IndexDivider() = default;
  explicit IndexDivider(int64_t divisor) : divisor_(static_cast<uint64_t>(divisor)) {}
  __device__ __forceinline__ uint64_t divide(uint64_t n, uint64_t& remainder) const {
    const uint64_t quotient = n / divisor_;
    remainder = n - quotient * divisor_;
    return quotient;
  }

 private:
  uint64_t divisor_ = 1;
};

/// Calls `function.operator()<Index>()` with the index type for `count` items that a grid-stride loop covers.
template <class F>
void dispatch_index(int64_t count, F&& function) {
  if (count <= std::numeric_limits<int32_t>::max()) {
    function.template operator()<uint32_t>();
  } else {
    function.template operator()<uint64_t>();
  }
}

}  // namespace sinter::ops
