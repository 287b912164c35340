// Elementary functions for results that are rounded to 16 bits: within 2^-15 of the value, subnormal results,
// infinities, NaN and signed zeros included, for an eighth to a half of the instructions that full float32
// precision takes. On a GPU they stand on its approximate instructions; elsewhere those are the standard
// library's functions, so that a test of the formulas needs no GPU.
//
// The polynomials are minimax fits of the relative error on the intervals beside them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/elementary_math.h>

namespace sinter::ops::math::coarse {

namespace detail {

inline constexpr float kLog2OfE = 1.44269504F;

SINTER_HOST_DEVICE inline float exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}
/// Subnormal results are 0.
SINTER_HOST_DEVICE inline float exp2_of_normal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}
/// Within 2^-22 absolutely between 1/2 and 2, else relatively.
SINTER_HOST_DEVICE inline float log2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::log2(x);
#endif
}
/// 1 / x for x >= 1; subnormal results are 0.
SINTER_HOST_DEVICE inline float reciprocal_of_large(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / x;
#endif
}

SINTER_HOST_DEVICE inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
SINTER_HOST_DEVICE inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Turns of pi are counted by adding 1.5 * 2^23, which rounds to an integer that stands in the low bits. Pi
// has three parts, of which products of the first with 15 bits are exact (W. Cody, W. Waite, 1980).
inline constexpr float kShift = 12582912.0F;
inline constexpr float kOneOverPi = 0.318309886F;

/// x - turns * pi.
SINTER_HOST_DEVICE inline float without_turns(float x, float turns) {
  float rest = std::fma(turns, -3.140625F, x);
  rest = std::fma(turns, -9.67653585e-4F, rest);
  return std::fma(turns, -5.12668814e-12F, rest);
}
/// sin(r) for |r| <= pi / 2, its sign turned over for odd `turns`, which stand in the low bits of `shifted`.
SINTER_HOST_DEVICE inline float sine_of_rest(float r, float shifted) {
  const float s = r * r;
  const float p = std::fma(std::fma(-1.85415760e-4F, s, 8.31425563e-3F), s, -0.166658521F);
  const float y = r * std::fma(s, p, 1.0F);
  return float_of(bits_of(y) ^ bits_of(shifted) << 31);
}

}  // namespace detail

using math::divide;

SINTER_HOST_DEVICE inline float sqrt(float x) {
#if defined(__CUDA_ARCH__)
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
#else
  return std::sqrt(x);
#endif
}

/// The square of exp(x / 2), which is no subnormal number where exp(x) is one.
SINTER_HOST_DEVICE inline float exp(float x) {
  const float root = detail::exp2_of_normal(x * (0.5F * detail::kLog2OfE));
  return root * root;
}

SINTER_HOST_DEVICE inline float log(float x) {
  const float t = x - 1.0F;  // exact near 1, where log2's error is not relative
  const float p = std::fma(std::fma(0.334067613F, t, -0.500733972F), t, 0.999999702F);  // |t| <= 1/16
  return std::abs(t) < 0.0625F ? t * p : detail::log2(x) * 0.693147181F;
}

/// log(1 + e) for e in [0, 1].
SINTER_HOST_DEVICE inline float log1p_of_unit(float e) {
  const float p = std::fma(std::fma(0.291337878F, e, -0.498101175F), e, 0.999987006F);  // e <= 1/8
  return e < 0.125F ? e * p : detail::log2(1.0F + e) * 0.693147181F;
}

/// Sine and cosine hold up to this in either direction; beyond, they are wrong but for infinities and NaN.
inline constexpr float kMostAngle = 100000.0F;

SINTER_HOST_DEVICE inline float sin(float x) {
  const float shifted = std::fma(x, detail::kOneOverPi, detail::kShift);
  return detail::sine_of_rest(detail::without_turns(x, shifted - detail::kShift), shifted);
}

/// -sin(x - pi / 2).
SINTER_HOST_DEVICE inline float cos(float x) {
  const float shifted = std::fma(x, detail::kOneOverPi, -0.5F) + detail::kShift;
  const float turns = (shifted - detail::kShift) + 0.5F;
  return -detail::sine_of_rest(detail::without_turns(x, turns), shifted);
}

SINTER_HOST_DEVICE inline float tanh(float x) {
  const float a = std::abs(x), s = x * x;
  const float p = std::fma(std::fma(-0.0414589755F, s, 0.130899981F), s, -0.333194762F);  // a <= 0.6
  const float power = detail::exp2_of_normal(a * (2.0F * detail::kLog2OfE));
  const float large = std::copysign(std::fma(-2.0F, detail::reciprocal_of_large(power + 1.0F), 1.0F), x);
  return a < 0.6F ? x * std::fma(s, p, 1.0F) : large;
}

/// 1 - 2^(-a q(a)), but near 0.
SINTER_HOST_DEVICE inline float erf(float x) {
  const float a = std::abs(x), s = x * x;
  const float p = std::fma(std::fma(0.108024448F, s, -0.375906438F), s, 1.12837768F);  // a <= 0.35
  float q = 2.91119004e-3F;                                                            // 0.35 <= a <= 4
  q = std::fma(q, a, -0.0294290166F);
  q = std::fma(q, a, 0.148391649F);
  q = std::fma(q, a, 0.918699443F);
  q = std::fma(q, a, 1.62784445F);
  const float large = std::copysign(1.0F - detail::exp2_of_normal(-a * q), x);
  return a < 0.35F ? x * p : large;
}

/// The normal distribution at x, and its density. As in float32 (activation_math.h), with a
/// shorter polynomial.
struct Normal {
  float distribution, density;
};
SINTER_HOST_DEVICE inline Normal normal(float x) {
  const float a = std::abs(x);
  const float root = detail::exp2_of_normal(a * a * (-0.25F * detail::kLog2OfE));
  const float t = detail::reciprocal_of_large(std::fma(0.33F, a, 1.0F));
  float p = -0.0567048155F;  // of t in [1/6, 1]
  p = std::fma(p, t, 0.0950854272F);
  p = std::fma(p, t, 0.0845760703F);
  p = std::fma(p, t, 0.112200253F);
  p = std::fma(p, t, 0.133332327F);
  p = std::fma(p, t, 0.131502524F);
  const float power = root * root, tail = power * (t * p);
  return {x > 0.0F ? 1.0F - tail : tail, 0.39894228F * power};
}

/// Whether pow(x, exponent) holds: beyond, what log2 lacks near 1 would count, and 0 is no factor of
/// infinity.
inline bool pow_holds(float exponent) {
  return exponent != 0.0F && std::abs(exponent) <= 8.0F;
}
/// x to the power of `exponent`.
SINTER_HOST_DEVICE inline float pow(float x, float exponent) {
  const bool is_whole = std::rint(exponent) == exponent;
  const bool is_odd = is_whole && std::rint(0.5F * exponent) != 0.5F * exponent;
  const float a = std::abs(x);
  const float base = is_whole || a > std::numeric_limits<float>::max() ? a : x;  // below 0: NaN
  const float power = detail::exp2(exponent * detail::log2(base));
  return is_odd ? std::copysign(power, x) : power;
}

}  // namespace sinter::ops::math::coarse
