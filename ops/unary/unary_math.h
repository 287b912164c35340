// The maths of the unary ops, for every backend: forward beside derivative. A functor works on compute types.
#pragma once

#include <cmath>
#include <tuple>
#include <type_traits>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/common/elementary_math.h>

namespace sinter::ops {

/// What the derivative of a unary op is computed from. A linear op that equals its own transpose reads
/// nothing: its gradient is the op itself, applied to dy, and it has no derivative().
enum class UnaryReads { kNothing, kInput, kOutput };

namespace detail {

template <class C>
inline constexpr C kInverseSqrtTwo = C(0.70710678118654752440);  // 1 / sqrt(2)
template <class C>
inline constexpr C kInverseSqrtTwoPi = C(0.39894228040143267794);  // 1 / sqrt(2 pi)
template <class C>
inline constexpr C kTwoOverSqrtPi = C(1.12837916709551257390);  // 2 / sqrt(pi)

}  // namespace detail

struct Neg {
  static constexpr const char* kName = "neg";
  static constexpr bool kIntegers = true;
  static constexpr UnaryReads kReads = UnaryReads::kNothing;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(std::make_unsigned_t<C>{0} - static_cast<std::make_unsigned_t<C>>(x));
    } else {
      return -x;
    }
  }
};

struct Abs {
  static constexpr const char* kName = "abs";
  static constexpr bool kIntegers = true;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) {
      return std::abs(x);
    } else if constexpr (std::is_signed_v<C>) {
      return x < 0 ? Neg()(x) : x;
    } else {
      return x;
    }
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    return x > C{0} ? dy : x < C{0} ? -dy : x * C{0};  // x * 0: NaN stays NaN
  }
};

struct Square {
  static constexpr const char* kName = "square";
  static constexpr bool kIntegers = true;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(static_cast<std::make_unsigned_t<C>>(x) *
                            static_cast<std::make_unsigned_t<C>>(x));
    } else {
      return x * x;
    }
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    return C{2} * x * dy;
  }
};

struct Exp {
  static constexpr const char* kName = "exp";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kOutput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return math::exp(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C y, C dy) {
    return dy * y;
  }
};

struct Log {
  static constexpr const char* kName = "log";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return std::log(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    return dy / x;
  }
};

struct Sqrt {
  static constexpr const char* kName = "sqrt";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kOutput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return std::sqrt(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C y, C dy) {
    return dy / (C{2} * y);
  }
};

struct Rsqrt {
  static constexpr const char* kName = "rsqrt";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kOutput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return C{1} / std::sqrt(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C y, C dy) {
    return C(-0.5) * dy * y * y * y;
  }
};

struct Reciprocal {
  static constexpr const char* kName = "reciprocal";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kOutput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return C{1} / x;
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C y, C dy) {
    return -dy * y * y;
  }
};

struct Sin {
  static constexpr const char* kName = "sin";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return std::sin(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    return dy * std::cos(x);
  }
};

struct Cos {
  static constexpr const char* kName = "cos";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return std::cos(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    return -dy * std::sin(x);
  }
};

struct Tanh {
  static constexpr const char* kName = "tanh";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kOutput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return math::tanh(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C y, C dy) {
    return dy * (C{1} - y * y);
  }
};

struct Erf {
  static constexpr const char* kName = "erf";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return std::erf(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    return dy * detail::kTwoOverSqrtPi<C> * math::exp(-x * x);
  }
};

struct Sigmoid {
  static constexpr const char* kName = "sigmoid";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kOutput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return C{1} / (C{1} + math::exp(-x));
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C y, C dy) {
    return dy * y * (C{1} - y);
  }
};

struct Silu {
  static constexpr const char* kName = "silu";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return x / (C{1} + math::exp(-x));
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    const C s = Sigmoid()(x);
    return dy * s * (C{1} + x * (C{1} - s));
  }
};

struct Gelu {
  static constexpr const char* kName = "gelu";
  static constexpr bool kIntegers = false;
  static constexpr UnaryReads kReads = UnaryReads::kInput;
  template <class C>
  SINTER_HOST_DEVICE static C distribution(C x) {  // Phi; erfc keeps its precision in the lower tail
    return C(0.5) * std::erfc(-x * detail::kInverseSqrtTwo<C>);
  }
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return x * distribution(x);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C x, C dy) {
    const C density = detail::kInverseSqrtTwoPi<C> * math::exp(C(-0.5) * x * x);
    return dy * (distribution(x) + x * density);
  }
};

using UnaryFunctors =
    std::tuple<Neg, Abs, Square, Exp, Log, Sqrt, Rsqrt, Reciprocal, Sin, Cos, Tanh, Erf, Sigmoid, Silu, Gelu>;

/// Calls `function(F())` for every unary functor.
template <class Function>
void for_each_unary(Function&& function) {
  std::apply([&](auto... functor) { (function(functor), ...); }, UnaryFunctors());
}

}  // namespace sinter::ops
