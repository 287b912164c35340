// The two 16-bit floating-point types. They only store: arithmetic converts to float, computes and rounds
// back.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#if defined(__F16C__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

namespace sinter {

namespace detail {

/// IEEE 754 binary32 to binary16, round to nearest even; overflow gives infinity, NaN stays NaN.
inline uint16_t float_to_half_bits(float value) {
#if defined(__F16C__) && !defined(__CUDACC__)
  return static_cast<uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
#else
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal or zero: let the float adder round at bit 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
#endif
}

inline float half_bits_to_float(uint16_t half) {
#if defined(__F16C__) && !defined(__CUDACC__)
  return _cvtsh_ss(half);
#else
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity or NaN (made quiet)
    const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude < 0x400u) {  // subnormal: magnitude * 2^-24 is exact
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
#endif
}

/// binary32 to bfloat16, round to nearest even; NaN stays NaN.
inline uint16_t float_to_bfloat16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float bfloat16_bits_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace detail

/// IEEE 754 binary16.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit float16(T value) : bits(detail::float_to_half_bits(static_cast<float>(value))) {}
  operator float() const { return detail::half_bits_to_float(bits); }
};

/// The upper half of an IEEE 754 binary32.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit bfloat16(T value) : bits(detail::float_to_bfloat16_bits(static_cast<float>(value))) {}
  operator float() const { return detail::bfloat16_bits_to_float(bits); }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);

}  // namespace sinter
