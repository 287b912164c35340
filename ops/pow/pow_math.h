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

}  // namespace sinter::ops
