// The attributes and the maths of clip, for every backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

struct ClipAttributes {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();

  bool operator==(const ClipAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("low", &ClipAttributes::low), field("high", &ClipAttributes::high));
  }
};

/// min(max(x, low), high) in the compute type C.
template <class C>
struct ClipFunctor {
  C low, high;

  explicit ClipFunctor(const ClipAttributes& attributes)
      : low(narrowed(attributes.low, std::ceil(attributes.low))),
        high(narrowed(attributes.high, std::floor(attributes.high))) {}
  SINTER_HOST_DEVICE C operator()(C x) const { return x < low ? low : x > high ? high : x; }
  SINTER_HOST_DEVICE C derivative(C x, C dy) const { return x >= low && x <= high ? dy : C{0}; }

 private:
  /// The bound itself for a floating-point C, else the whole number inside of it, within the range of C.
  static C narrowed(double bound, double whole) {
    if constexpr (std::is_floating_point_v<C>) {
      return static_cast<C>(bound);
    } else {
      using Limits = std::numeric_limits<C>;
      if (whole <= static_cast<double>(Limits::lowest())) return Limits::lowest();
      if (whole >= static_cast<double>(Limits::max())) return Limits::max();
      return static_cast<C>(whole);
    }
  }
};

}  // namespace sinter::ops
