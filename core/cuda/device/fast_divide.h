// Division of 32-bit indices by a number that is fixed for a launch: one multiplication and a shift in place
// of the tens of instructions of an integer division.
//
// Source: T. Granlund, P. Montgomery, "Division by invariant integers using multiplication", PLDI 1994,
// section 4: with s = ceil(log2 d) and m = floor(2^32 (2^s - d) / d) + 1, n / d = (mulhi(n, m) + n) >> s; the
// sum is kept in 64 bits.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::cuda {

class FastDivide {
 public:
  FastDivide() = default;
  /// divisor in [1, 2^31].
  explicit FastDivide(uint32_t divisor) : divisor_(divisor) {
    while (shift_ < 32 && (uint64_t{1} << shift_) < divisor) ++shift_;
    multiplier_ = static_cast<uint32_t>(((((uint64_t{1} << shift_) - divisor) << 32) / divisor) + 1);
  }

  SINTER_HOST_DEVICE uint32_t divide(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    const uint32_t high = __umulhi(n, multiplier_);
#else
    const auto high = static_cast<uint32_t>((uint64_t{n} * multiplier_) >> 32);
#endif
    return static_cast<uint32_t>((uint64_t{high} + n) >> shift_);
  }

  /// Quotient and remainder at once.
  SINTER_HOST_DEVICE uint32_t divide(uint32_t n, uint32_t& remainder) const {
    const uint32_t quotient = divide(n);
    remainder = n - quotient * divisor_;
    return quotient;
  }

  SINTER_HOST_DEVICE uint32_t divisor() const {
    return divisor_;
  }

 private:
  uint32_t divisor_ = 1;
  uint32_t multiplier_ = 1;
  uint32_t shift_ = 0;
};

/// Division of indices of any size by a number that is fixed for a launch: FastDivide for indices below 2^32,
/// which all but giant tensors have, else a 64-bit division.
class WideDivide {
 public:
  WideDivide() = default;
  /// divisor >= 1.
  explicit WideDivide(int64_t divisor)
      : divisor_(divisor), fast_(divisor <= kMost ? static_cast<uint32_t>(divisor) : 1u) {}

  /// Quotient and remainder of n >= 0.
  SINTER_HOST_DEVICE int64_t divide(int64_t n, int64_t& remainder) const {
    if (n <= int64_t{UINT32_MAX} && divisor_ <= kMost) {
      uint32_t rest = 0;
      const uint32_t quotient = fast_.divide(static_cast<uint32_t>(n), rest);
      remainder = rest;
      return quotient;
    }
    const int64_t quotient = n / divisor_;
    remainder = n - quotient * divisor_;
    return quotient;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 31;
  int64_t divisor_ = 1;
  FastDivide fast_{1};
};

}  // namespace sinter::cuda
