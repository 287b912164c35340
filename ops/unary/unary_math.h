// The maths of the unary ops, for every backend: forward beside derivative.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/coarse_math.h>
#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/elementwise_op.h>
#include <sinter/ops/common/wide_math.h>

namespace sinter::ops {

template <class C>
struct Neg {
  static constexpr const char* kName = "neg";
  static constexpr bool kIntegers = true;
  static constexpr auto kReads = DerivativeReads::kNothing;

  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(std::make_unsigned_t<C>{0} - static_cast<std::make_unsigned_t<C>>(x));
    } else {
      return -x;
    }
  }
};

template <class C>
struct Abs {
  static constexpr const char* kName = "abs";
  static constexpr bool kIntegers = true;
  static constexpr auto kReads = DerivativeReads::kInput;
  static constexpr bool kPiecewiseLinear = true;

  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) {
      return std::abs(x);
    } else if constexpr (std::is_signed_v<C>) {
      return x < 0 ? Neg<C>()(x) : x;
    } else {
      return x;
    }
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    return x > C{0} ? dy : x < C{0} ? -dy : x * C{0};  // x * 0: NaN stays NaN
  }
};

template <class C>
struct Sign {
  static constexpr const char* kName = "sign";
  static constexpr bool kIntegers = true;
  static constexpr auto kReads = DerivativeReads::kOutput;
  static constexpr bool kPiecewiseLinear = true;

  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_unsigned_v<C>) {
      return x != C{0} ? C{1} : C{0};
    } else {
      const C below = x < C{0} ? C{-1} : C{0};
      return x > C{0} ? C{1} : below;
    }
  }
  SINTER_HOST_DEVICE C derivative(C, C) const { return C{0}; }
};

template <class C>
struct Square {
  static constexpr const char* kName = "square";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr bool kIntegers = true;
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(static_cast<std::make_unsigned_t<C>>(x) *
                            static_cast<std::make_unsigned_t<C>>(x));
    } else {
      return x * x;
    }
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return C{2} * x * dy; }
  Tensor second(const Tensor& x, const Tensor& dy) const;
};

template <class C>
struct Exp {
  static constexpr const char* kName = "exp";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kOutput;

  SINTER_HOST_DEVICE C operator()(C x) const { return math::exp(x); }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const { return dy * y; }
  Tensor second(const Tensor& y, const Tensor& dy) const;
};

template <class C>
struct Log {
  static constexpr const char* kName = "log";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const { return math::log(x); }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::log(x); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return dy / x; }
  Tensor second(const Tensor& x, const Tensor& dy) const;
};

template <class C>
struct Sqrt {
  static constexpr const char* kName = "sqrt";
  static constexpr auto kReads = DerivativeReads::kOutput;

  SINTER_HOST_DEVICE C operator()(C x) const { return std::sqrt(x); }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::sqrt(x); }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const { return dy / (C{2} * y); }
  Tensor second(const Tensor& y, const Tensor& dy) const;
};

template <class C>
struct Rsqrt {
  static constexpr const char* kName = "rsqrt";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kOutput;

  SINTER_HOST_DEVICE C operator()(C x) const {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<C, float>) return ::rsqrtf(x);  // within 2 units in the last place
#endif
    return C{1} / std::sqrt(x);
  }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const {
    return C(-0.5) * dy * y * y * y;
  }
  Tensor second(const Tensor& y, const Tensor& dy) const;
};

template <class C>
struct Reciprocal {
  static constexpr const char* kName = "reciprocal";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kOutput;

  SINTER_HOST_DEVICE C operator()(C x) const { return C{1} / x; }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::divide(1.0f, x); }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const { return -dy * y * y; }
  Tensor second(const Tensor& y, const Tensor& dy) const;
};

template <class C>
struct Sin {
  static constexpr const char* kName = "sin";
  static constexpr auto kReads = DerivativeReads::kInput;
  static constexpr float kCoarseMost = math::coarse::kMostAngle;

  SINTER_HOST_DEVICE C operator()(C x) const { return std::sin(x); }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::sin(x); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return dy * std::cos(x); }
  Tensor second(const Tensor& x, const Tensor& dy) const;
  SINTER_HOST_DEVICE float coarse_derivative(float x, float dy) const { return dy * math::coarse::cos(x); }
};

template <class C>
struct Cos {
  static constexpr const char* kName = "cos";
  static constexpr auto kReads = DerivativeReads::kInput;
  static constexpr float kCoarseMost = math::coarse::kMostAngle;

  SINTER_HOST_DEVICE C operator()(C x) const { return std::cos(x); }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::cos(x); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return -dy * std::sin(x); }
  Tensor second(const Tensor& x, const Tensor& dy) const;
  SINTER_HOST_DEVICE float coarse_derivative(float x, float dy) const { return -dy * math::coarse::sin(x); }
};

template <class C>
struct Tanh {
  static constexpr const char* kName = "tanh";
  static constexpr auto kReads = DerivativeReads::kOutput;

  SINTER_HOST_DEVICE C operator()(C x) const { return math::tanh(x); }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::tanh(x); }
  SINTER_HOST_DEVICE C derivative(C y, C dy) const { return dy * (C{1} - y * y); }
  Tensor second(const Tensor& y, const Tensor& dy) const;
};

template <class C>
struct Erf {
  static constexpr const char* kName = "erf";
  static constexpr auto kReads = DerivativeReads::kInput;

  SINTER_HOST_DEVICE C operator()(C x) const { return math::erf(x); }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::erf(x); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    return dy * C(1.12837916709551257390) * math::exp(-x * x);  // 2 / sqrt(pi)
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
};

/// x to the power of `exponent`. The exponents that people write most often have kernels of their own,
/// without the general function, which is slow.
template <class C>
struct Pow {
  static constexpr const char* kName = "pow";
  static constexpr Precision kPrecision = Precision::kFloat32;
  static constexpr auto kReads = DerivativeReads::kInput;
  C exponent = C{1};
  bool operator==(const Pow&) const = default;
  template <class Self = Pow>
  static constexpr auto fields() {
    return std::tuple(field("exponent", &Self::exponent));
  }

  SINTER_HOST_DEVICE C operator()(C x) const { return math::pow(x, exponent); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    if (exponent == C{0}) return C{0};
    return dy * exponent * math::pow(x, exponent - C{1});
  }
  Tensor second(const Tensor& x, const Tensor& dy) const;
  bool coarse_holds() const {
    return math::coarse::pow_holds(static_cast<float>(exponent)) &&
           math::coarse::pow_holds(static_cast<float>(exponent) - 1.0f);
  }
  SINTER_HOST_DEVICE float coarse(float x) const { return math::coarse::pow(x, exponent); }
  SINTER_HOST_DEVICE float coarse_derivative(float x, float dy) const {
    return dy * exponent * math::coarse::pow(x, exponent - 1.0f);
  }
};

template <int exponent>
bool is_pow(const KernelQuery& query) {
  return query.attributes<Pow<double>>().exponent == exponent;
}

/// min(max(x, low), high).
template <class C>
struct Clip {
  static constexpr const char* kName = "clip";
  static constexpr bool kIntegers = true;
  static constexpr auto kReads = DerivativeReads::kInput;
  static constexpr bool kPiecewiseLinear = true;
  C low = C{0};
  C high = C{0};
  bool operator==(const Clip&) const = default;
  template <class Self = Clip>
  static constexpr auto fields() {
    return std::tuple(field("low", &Self::low), field("high", &Self::high));
  }

  // One selection after the other: the CPU's compiler does not vectorise nested ones.
  SINTER_HOST_DEVICE C operator()(C x) const {
    const C raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    const C above = x >= low ? dy : C{0};
    return x <= high ? above : C{0};
  }

  void check(const InferContext& context) const {
    SINTER_CHECK(low <= high, "[{}] expected low <= high but got {} and {}", context.tag(), low, high);
    SINTER_CHECK(is_float(context.input(0).dtype) || std::ceil(low) <= std::floor(high),
                 "[{}] expected bounds with a whole number between them for {} but got {} and {}",
                 context.tag(), context.input(0).dtype, low, high);
  }
  /// The bounds rounded to T, so that an element that was clipped equals them; for integers the whole numbers
  /// between them, within T's range.
  template <class T>
  static Clip from(const Clip<double>& op) {
    if constexpr (std::is_integral_v<T>) {
      return {narrowed(std::ceil(op.low)), narrowed(std::floor(op.high))};
    } else {
      return {static_cast<C>(static_cast<T>(op.low)), static_cast<C>(static_cast<T>(op.high))};
    }
  }

 private:
  static C narrowed(double whole) {
    using Limits = std::numeric_limits<C>;
    if (whole <= static_cast<double>(Limits::lowest())) return Limits::lowest();
    if (whole >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<C>(whole);
  }
};

/// scale * x + shift. Integers compute modulo 2^n, which is wrapping around.
template <class C>
struct Affine {
  static constexpr const char* kName = "affine";
  static constexpr bool kIntegers = true;
  static constexpr auto kReads = DerivativeReads::kNothing;
  C scale = C{1};
  C shift = C{0};
  bool operator==(const Affine&) const = default;
  template <class Self = Affine>
  static constexpr auto fields() {
    return std::tuple(field("scale", &Self::scale), field("shift", &Self::shift));
  }

  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      using Modular = std::make_unsigned_t<C>;
      return static_cast<C>(static_cast<Modular>(scale) * static_cast<Modular>(x) +
                            static_cast<Modular>(shift));
    } else {
      return scale * x + shift;
    }
  }
  Affine derivative_op() const { return {scale, C{0}}; }

  void check(const InferContext& context) const {
    SINTER_CHECK(is_float(context.input(0).dtype) || (is_int64(scale) && is_int64(shift)),
                 "[affine] expected whole numbers as scale and shift of an {} tensor but got {} and {}",
                 context.input(0).dtype, scale, shift);
  }
  template <class T>
  static Affine from(const Affine<double>& op) {
    using Number = std::conditional_t<std::is_integral_v<C>, int64_t, C>;
    return {static_cast<C>(static_cast<Number>(op.scale)), static_cast<C>(static_cast<Number>(op.shift))};
  }

 private:
  static bool is_int64(double value) {
    return value == std::trunc(value) && value >= -0x1p63 && value < 0x1p63;
  }
};

using UnaryOps = ElementwiseOps<Neg, Abs, Sign, Square, Exp, Log, Sqrt, Rsqrt, Reciprocal, Sin, Cos, Tanh,
                                Erf, Pow, Clip, Affine>;

}  // namespace sinter::ops
