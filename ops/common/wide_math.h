// log, pow, sine and cosine of float for the CPU's elementwise loops: straight-line code in double, whose
// extra digits take up what cancels, so that the compiler vectorises it and the result is rounded once. For
// double, and on a GPU, they are the library's.
//
// The polynomials are minimax fits of the relative error on the intervals beside them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <sinter/core/base/host_device.h>

namespace sinter::ops::math {

namespace detail {

/// Adding it rounds to an integer, which then stands in the low bits.
inline constexpr double kWideShift = 0x1.8p52;

/// 2^y for |y| <= 1000, within 2^-34 of it.
inline double exp2(double y) {
  const double shifted = y + kWideShift;
  const double r = y - (shifted - kWideShift);  // |r| <= 1/2
  double p = 1.52019149515063e-5;
  p = p * r + 1.54692907375628e-4;
  p = p * r + 1.33339225813978e-3;
  p = p * r + 9.61802725514752e-3;
  p = p * r + 5.55041035345034e-2;
  p = p * r + 0.240226511981472;
  p = p * r + 0.693147180728436;
  p = p * r + 0.999999999961682;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

/// The logarithm to base 2 of a normal number above 0, within 2^-44 of it. It is -1023 for 0 and 1024 for
/// infinity.
inline double log2(double x) {
  constexpr uint64_t kRootOfHalf = 0x3FE6A09E667F3BCD, kBias = uint64_t{1023} << 52;
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)). The biased k becomes a double by standing in the low bits of
  // 2^52: few processors convert 64-bit integers.
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t biased = (bits - kRootOfHalf + kBias) >> 52;
  const double k = std::bit_cast<double>(biased | 0x4330000000000000) - (0x1p52 + 1023);
  const double m = std::bit_cast<double>(bits - (biased << 52) + kBias);
  // log2(m) is 2 / ln(2) times the inverse hyperbolic tangent of t; |t| <= 0.1716.
  const double t = (m - 1) / (m + 1), s = t * t;
  double p = 0.282908678559612;
  p = p * s + 0.319905132326872;
  p = p * s + 0.412209265321550;
  p = p * s + 0.577077942245465;
  p = p * s + 0.961796694113721;
  p = p * s + 2.88539008177785;
  return t * p + k;
}

/// Pi in two parts, of which products of the first with 21 bits are exact (W. Cody, W. Waite, 1980).
inline constexpr double kPiHigh = 0x1.921fb544p+1, kPiLow = 0x1.0b4611a626331p-33;
inline constexpr double kOneOverPi = 0.318309886183790672;

/// sin(x - turns * pi), its sign turned over for odd `turns`, which stand in the low bits of `shifted`.
inline float sine_without_turns(double x, double turns, double shifted) {
  const double r = (x - turns * kPiHigh) - turns * kPiLow;  // |r| <= pi / 2
  const double s = r * r;
  double p = -2.38886732e-8;
  p = p * s + 2.75253713e-6;
  p = p * s - 1.98408679595839e-4;
  p = p * s + 8.33333110673117e-3;
  p = p * s - 0.166666666261062;
  const double y = r * (s * p + 1);
  return static_cast<float>(
      std::bit_cast<double>(std::bit_cast<uint64_t>(y) ^ std::bit_cast<uint64_t>(shifted) << 63));
}

}  // namespace detail

SINTER_HOST_DEVICE inline double log(double x) {
  return std::log(x);
}
SINTER_HOST_DEVICE inline double pow(double x, double exponent) {
  return std::pow(x, exponent);
}

/// Within 0.501 units in the last place.
SINTER_HOST_DEVICE inline float log(float x) {
#if defined(__CUDA_ARCH__)
  return std::log(x);
#else
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float value = static_cast<float>(detail::log2(static_cast<double>(x)) * 0.693147180559945309);
  const float of_zero = x == 0.0f ? -kInfinity : value;
  const float of_positive = x == kInfinity ? kInfinity : of_zero;
  return x >= 0.0f ? of_positive : std::numeric_limits<float>::quiet_NaN();
#endif
}

/// x to the power of `exponent`, with the special values of the standard library's; within 0.51 units in the
/// last place.
SINTER_HOST_DEVICE inline float pow(float x, float exponent) {
#if defined(__CUDA_ARCH__)
  return std::pow(x, exponent);
#else
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kMost = 300;  // beyond, a float is infinite or 0
  // What is the same for all elements is chosen by arithmetic: selections by it would not be vectorised.
  const auto is_whole = static_cast<uint32_t>(std::rint(exponent) == exponent);
  const auto is_half_whole = static_cast<uint32_t>(std::rint(0.5f * exponent) == 0.5f * exponent);
  const uint32_t sign_bit = (is_whole & ~is_half_whole) << 31;
  constexpr uint32_t kOneBits = std::bit_cast<uint32_t>(1.0f), kNaNBits = std::bit_cast<uint32_t>(kNaN);
  const auto one_or_nan = [=](uint32_t one) {
    return std::bit_cast<float>(kNaNBits - one * (kNaNBits - kOneBits));
  };
  const float of_negative = one_or_nan(is_whole);
  const float of_nan = one_or_nan(static_cast<uint32_t>(exponent == 0.0f));

  const float a = std::abs(x);
  const double of_positive = detail::log2(static_cast<double>(a));
  const double finite = a == 0.0f ? -double{kInfinity} : of_positive;
  const double logarithm = a == kInfinity ? double{kInfinity} : finite;
  const double product = logarithm == 0 ? 0 : exponent * logarithm;
  const double limited = product > kMost ? kMost : product;
  const float power = static_cast<float>(detail::exp2(limited < -kMost ? -kMost : limited));
  const float of_finite = x < 0.0f ? power * of_negative : power;
  const float magnitude = a == kInfinity ? power : of_finite;
  const float value = x == x ? magnitude : kNaN;
  const float signed_value =
      std::bit_cast<float>(std::bit_cast<uint32_t>(value) | (std::bit_cast<uint32_t>(x) & sign_bit));
  return value == value ? signed_value : of_nan;
#endif
}

/// Up to this in either direction bounded_sin and bounded_cos are within 0.51 units in the last place.
inline constexpr float kMostBoundedAngle = 1e6f;

inline float bounded_sin(float x) {
  const double shifted = x * detail::kOneOverPi + detail::kWideShift;
  return detail::sine_without_turns(x, shifted - detail::kWideShift, shifted);
}

/// -sin(x - pi / 2).
inline float bounded_cos(float x) {
  const double shifted = (x * detail::kOneOverPi - 0.5) + detail::kWideShift;
  return -detail::sine_without_turns(x, (shifted - detail::kWideShift) + 0.5, shifted);
}

}  // namespace sinter::ops::math
