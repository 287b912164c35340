// Numbers that users give: what 64 bits, or an element of a tensor, cannot hold is an error, never another
// number.
#pragma once

#include <cmath>
#include <cstdint>

#include <sinter/core/base/dtype.h>

namespace sinter {

/// The most elements of a tensor; with it the bytes of any dtype, and sums of a few such numbers, fit into 64
/// bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 59;

/// a + b; throws InvalidArgument, tagged, if that is beyond 64 bits.
inline int64_t checked_add(const char* tag, int64_t a, int64_t b) {
  int64_t sum = 0;
  SINTER_CHECK(!__builtin_add_overflow(a, b, &sum), "[{}] {} + {} is beyond 64 bits", tag, a, b);
  return sum;
}

/// a * b, likewise.
inline int64_t checked_multiply(const char* tag, int64_t a, int64_t b) {
  int64_t product = 0;
  SINTER_CHECK(!__builtin_mul_overflow(a, b, &product), "[{}] {} * {} is beyond 64 bits", tag, a, b);
  return product;
}

/// Whether `value` is an element of `dtype`, to which floating-point dtypes round it.
inline bool can_hold(DType dtype, double value) {
  if (is_float(dtype)) return true;
  if (value != std::trunc(value)) return false;  // fractions; NaN too
  switch (dtype) {
    case DType::kInt64:
      return value >= -0x1p63 && value < 0x1p63;
    case DType::kInt32:
      return value >= -0x1p31 && value < 0x1p31;
    case DType::kUInt8:
      return value >= 0 && value <= 255;
    default:
      return value == 0 || value == 1;
  }
}

/// Throws InvalidArgument, tagged, unless it is.
inline void check_holds(const char* tag, DType dtype, double value) {
  SINTER_CHECK(can_hold(dtype, value), "[{}] expected a value that {} can represent but got {}", tag, dtype,
               value);
}

}  // namespace sinter
