// The maths of the binary ops, for every backend. A functor works on compute types; integers wrap around.
#pragma once

#include <tuple>
#include <type_traits>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/elementary_math.h>

namespace sinter::ops {

namespace detail {

/// Signed integers go through their unsigned type, in which overflow is defined.
template <class C, class F>
SINTER_HOST_DEVICE C wrapping(C a, C b, F function) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(function(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return function(a, b);
  }
}

}  // namespace detail

struct Add {
  static constexpr const char* kName = "add";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return detail::wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};

struct Sub {
  static constexpr const char* kName = "sub";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return detail::wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};

struct Mul {
  static constexpr const char* kName = "mul";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return detail::wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};

struct Div {
  static constexpr const char* kName = "div";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return a / b;
  }
};

/// A comparison that is false for NaN decides for `a` in all of these, so that NaN in `a` wins; NaN in `b` is
/// asked for.
struct Maximum {
  static constexpr const char* kName = "maximum";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return a < b || b != b ? b : a;
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C a, C b, C dy) {
    return a < b ? C{0} : a == b ? dy / C{2} : dy;
  }
};

struct Minimum {
  static constexpr const char* kName = "minimum";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return b < a || b != b ? b : a;
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C a, C b, C dy) {
    return b < a ? C{0} : a == b ? dy / C{2} : dy;
  }
};

/// a * b, where a factor of 0 leaves out whatever the other one is.
struct MulNoNan {
  static constexpr const char* kName = "mul_no_nan";
  template <class C>
  SINTER_HOST_DEVICE C operator()(C a, C b) const {
    return math::mul_no_nan(a, b);
  }
  template <class C>
  SINTER_HOST_DEVICE static C derivative(C a, C b, C dy) {
    return math::mul_no_nan_derivative(a, b, dy);
  }
};

struct Equal {
  static constexpr const char* kName = "equal";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a == b;
  }
};

struct Less {
  static constexpr const char* kName = "less";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a < b;
  }
};

struct Greater {
  static constexpr const char* kName = "greater";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a > b;
  }
};

struct NotEqual {
  static constexpr const char* kName = "not_equal";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a != b;
  }
};

struct LessEqual {
  static constexpr const char* kName = "less_equal";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a <= b;
  }
};

struct GreaterEqual {
  static constexpr const char* kName = "greater_equal";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a >= b;
  }
};

struct LogicalAnd {
  static constexpr const char* kName = "logical_and";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a != C{0} && b != C{0};
  }
};

struct LogicalOr {
  static constexpr const char* kName = "logical_or";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return a != C{0} || b != C{0};
  }
};

struct LogicalXor {
  static constexpr const char* kName = "logical_xor";
  template <class C>
  SINTER_HOST_DEVICE bool operator()(C a, C b) const {
    return (a != C{0}) != (b != C{0});
  }
};

/// Calls `function(F())` for every functor of a std::tuple of functors.
template <class Functors, class Function>
void for_each_functor(Function&& function) {
  std::apply([&](auto... functor) { (function(functor), ...); }, Functors());
}

using NumberFunctors = std::tuple<Add, Sub, Mul, Maximum, Minimum>;  // every dtype but bool
using FloatFunctors = std::tuple<Div, MulNoNan>;
// Every dtype, to bool.
using OrderFunctors = std::tuple<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual>;
using LogicFunctors = std::tuple<LogicalAnd, LogicalOr, LogicalXor>;
using CompareFunctors = decltype(std::tuple_cat(OrderFunctors(), LogicFunctors()));
using GradientFunctors = std::tuple<Maximum, Minimum, MulNoNan>;  // those with a gradient op

}  // namespace sinter::ops
