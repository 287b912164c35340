// The attributes and the maths of pow, for every backend.
#pragma once

#include <cmath>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

struct PowAttributes {
  double exponent = 1.0;

  bool operator==(const PowAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("exponent", &PowAttributes::exponent)); }
};

/// x to the power of `exponent` in the compute type C.
template <class C>
struct PowFunctor {
  C exponent;

  SINTER_HOST_DEVICE C operator()(C x) const { return std::pow(x, exponent); }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const {
    return exponent == C{0} ? C{0} : dy * exponent * std::pow(x, exponent - C{1});
  }
};

/// The exponents that people write most often, without the general function, which is slow and cannot be
/// vectorised.
struct PowTwo {
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return x * x;
  }
};

struct PowMinusOne {
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x) const {
    return C{1} / x;
  }
};

/// The derivatives with respect to x, times dy.
template <class C>
struct PowGrad {
  PowFunctor<C> functor;

  SINTER_HOST_DEVICE C operator()(C x, C dy) const { return functor.derivative(x, dy); }
};

struct PowTwoGrad {
  template <class C>
  SINTER_HOST_DEVICE C operator()(C x, C dy) const {
    return dy * C{2} * x;
  }
};

/// Calls use(function) with the quickest function of x for an exponent.
template <class C, class Use>
void with_pow(double exponent, Use use) {
  if (exponent == 2.0) return use(PowTwo());
  if (exponent == -1.0) return use(PowMinusOne());
  use(PowFunctor<C>{static_cast<C>(exponent)});
}

/// ... of x and dy.
template <class C, class Use>
void with_pow_grad(double exponent, Use use) {
  if (exponent == 2.0) return use(PowTwoGrad());
  use(PowGrad<C>{{static_cast<C>(exponent)}});
}

}  // namespace sinter::ops
