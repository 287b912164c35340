// Arithmetic on numbers that users give: what 64 bits cannot hold is an error, never a wrapped number.
#pragma once

#include <cstdint>

#include <sinter/core/base/error.h>

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

}  // namespace sinter
