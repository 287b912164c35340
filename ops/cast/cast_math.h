// The attributes and the maths of cast, for every backend.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/host_device.h>
#include <sinter/core/op/attributes.h>

namespace sinter::ops {

struct CastAttributes {
  DType dtype = DType::kFloat32;

  bool operator==(const CastAttributes&) const = default;
  template <class Self = CastAttributes>
  static constexpr auto fields() {
    return std::tuple(field("dtype", &Self::dtype));
  }
};

/// A value of one compute type as another. What C++ leaves undefined, a floating-point value beyond an
/// integer's range, gives the nearest end of the range, and NaN gives 0.
template <class To, class From>
SINTER_HOST_DEVICE To convert_value(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // The ends of the range as `From` sees them: max() may round up to a power of two, which is out of range
    // already.
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::lowest());
    constexpr From kHigh = static_cast<From>(std::numeric_limits<To>::max());
    if (value != value) return To{0};
    if (value <= kLow) return std::numeric_limits<To>::lowest();
    if (value >= kHigh) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// `value` rounded to odd: as a float if float holds it, else as that one of its two neighbours whose last
/// bit is set. A second rounding, to at most 22 bits, then gives what one rounding of `value` would. Source:
/// S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding
/// to odd", 2008.
template <class From>
SINTER_HOST_DEVICE float round_to_odd(From value) {
  const auto nearest = static_cast<float>(value);
  bool is_below, is_above;  // where the nearest float lies
  if constexpr (std::is_floating_point_v<From>) {
    if (value - value != From{0} || nearest - nearest != 0.0f) return nearest;  // no finite number
    is_below = static_cast<From>(nearest) < value;
    is_above = static_cast<From>(nearest) > value;
  } else {
    constexpr float kEnd = 0x1p63f;  // the only float of an int64 that is none itself
    is_above = nearest >= kEnd || static_cast<int64_t>(nearest) > int64_t{value};
    is_below = !is_above && static_cast<int64_t>(nearest) < int64_t{value};
  }
  if (!is_below && !is_above) return nearest;
  // Towards zero, and then up to the odd neighbour: floats of one sign are ordered as their bits are.
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const bool is_farther = value < From{0} ? is_below : is_above;
  return std::bit_cast<float>((is_farther ? bits - 1 : bits) | 1u);
}

/// An element of one dtype in the compute type of another, whose rounding to `To` is then the only one.
template <class To, class From>
SINTER_HOST_DEVICE compute_type<To> convert_element(From value) {
  constexpr bool kMayRoundTwice = sizeof(To) < sizeof(compute_type<To>) && sizeof(From) >= sizeof(int32_t) &&
                                  !std::is_same_v<From, float>;
  if constexpr (kMayRoundTwice) {
    return round_to_odd(value);
  } else {
    return convert_value<compute_type<To>>(value);
  }
}

}  // namespace sinter::ops
