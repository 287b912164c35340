// exp, tanh, erf, log1p, division, and products without NaN for elementwise loops. On the CPU the float
// versions are straight-line code that the compiler vectorises, about as accurate as the standard library's;
// on a GPU, and for double, they are the library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops::math {

namespace detail {

/// x = k ln 2 + r with |r| <= ln(2) / 2, and p = exp(r) - 1 to within a unit in the last place.
struct ExpParts {
  float p;
  int32_t k;
};

inline ExpParts exp_parts(float x) {
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits. Unlike a conversion it is
  // defined for NaN.
  constexpr float kShift = 12582912.0f;
  const float shifted = x * 1.44269504f + kShift;
  const int32_t k = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift);
  const float whole = shifted - kShift;
  // ln 2 in two parts, the first short enough for an exact product (W. Cody, W. Waite, 1980).
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  // The Taylor series up to r^8: what is left out is below 2^-27 of p.
  float p = 1.0f / 40320.0f;
  p = p * r + 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  return {p * (r * r) + r, k};
}

/// 2^k for -126 <= k <= 127.
inline float power_of_two(int32_t k) {
  return std::bit_cast<float>((k + 127) << 23);
}

}  // namespace detail

SINTER_HOST_DEVICE inline double exp(double x) {
  return std::exp(x);
}
SINTER_HOST_DEVICE inline double tanh(double x) {
  return std::tanh(x);
}

/// Within 1 unit in the last place; infinity above 88.73, 0 below -103.98, subnormal results included.
SINTER_HOST_DEVICE inline float exp(float x) {
#if defined(__CUDA_ARCH__)
  return std::exp(x);
#else
  const float above = x > 89.0f ? 89.0f : x;  // NaN stays NaN
  const float limited = above < -105.0f ? -105.0f : above;
  const auto [p, k] = detail::exp_parts(limited);
  const int32_t half = k >> 1;  // two factors: 2^k itself may be too large or too small
  return (p + 1.0f) * detail::power_of_two(half) * detail::power_of_two(k - half);
#endif
}

/// Within 2.5 units in the last place: (exp(2x) - 1) / (exp(2x) + 1), whose numerator is computed without
/// cancellation.
SINTER_HOST_DEVICE inline float tanh(float x) {
#if defined(__CUDA_ARCH__)
  return std::tanh(x);
#else
  const float magnitude = std::abs(x);
  const auto [p, k] = detail::exp_parts(magnitude > 10.0f ? 20.0f : 2.0f * magnitude);
  const float power = detail::power_of_two(k & 63);  // k <= 29; the mask keeps NaN's k in range
  const float numerator = power * p + (power - 1.0f);
  return std::copysign(numerator / (numerator + 2.0f), x);
#endif
}

SINTER_HOST_DEVICE inline double erf(double x) {
  return std::erf(x);
}

/// Within 2 units in the last place: a polynomial in x^2 up to 1, beyond it 1 - exp(-q(|x|)), where 4 stands
/// for all that is larger. Both are minimax fits of erf's relative error, within 2^-29 and 2^-35.
SINTER_HOST_DEVICE inline float erf(float x) {
#if defined(__CUDA_ARCH__)
  return std::erf(x);
#else
  const float magnitude = std::abs(x), s = x * x;
  float p = 7.85383976e-5f;
  p = p * s - 8.01018686e-4f;
  p = p * s + 5.18832689e-3f;
  p = p * s - 0.0268538115f;
  p = p * s + 0.112835851f;
  p = p * s - 0.376126258f;
  p = p * s + 0.128379166f;                             // without 1, so that the sum is rounded once
  const float a = magnitude > 4.0f ? 4.0f : magnitude;  // NaN stays NaN
  float q = 2.16975585e-5f;
  q = q * a - 4.41471943e-4f;
  q = q * a + 4.20528096e-3f;
  q = q * a - 0.0252103287f;
  q = q * a + 0.108422081f;
  q = q * a + 0.633216416f;
  q = q * a + 1.12958030f;
  q = q * a - 1.88465541e-4f;
  const float large = std::copysign(1.0f - exp(-q), x);
  return magnitude < 1.0f ? x * p + x : large;
#endif
}

SINTER_HOST_DEVICE inline double divide(double a, double b) {
  return a / b;
}
/// a / b; on a GPU within 2 units in the last place, without the branch that one more would take.
SINTER_HOST_DEVICE inline float divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#else
  return a / b;
#endif
}

SINTER_HOST_DEVICE inline double log1p_of_unit(double e) {
  return std::log1p(e);
}

/// log(1 + e) for e in [0, 1], within 3 units in the last place: twice the inverse hyperbolic tangent of
/// e / (2 + e), which is at most 1/3; its polynomial is a minimax fit there, within 2^-27.
SINTER_HOST_DEVICE inline float log1p_of_unit(float e) {
  const float t = divide(e, 2.0f + e);
  const float s = t * t;
  float p = 0.140891671f;
  p = p * s + 0.139803007f;
  p = p * s + 0.200124547f;
  p = p * s + 0.333331585f;
  const float twice = t + t;
  return twice * s * p + twice;
}

/// a * b, and 0 if a or b is 0, whatever the other one is: a weight, a mask or a probability of 0 takes its
/// term out, also one that is infinite or NaN.
template <class C>
SINTER_HOST_DEVICE C mul_no_nan(C a, C b) {
  const C product = a * b;
  const C unless_a = a == C{0} ? C{0} : product;
  return b == C{0} ? C{0} : unless_a;  // one selection after the other: nested ones are not vectorised
}

/// The derivative with respect to a, times dy. What was left out beside infinity or NaN has none, in neither
/// factor.
template <class C>
SINTER_HOST_DEVICE C mul_no_nan_derivative(C a, C b, C dy) {
  const C slope = mul_no_nan(dy, b);
  const bool is_out = a == C{0} && b - b != C{0};
  return is_out ? C{0} : slope;
}

}  // namespace sinter::ops::math
