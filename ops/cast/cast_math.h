// The attributes and the maths of cast, for every backend.
#pragma once

#include <limits>
#include <tuple>
#include <type_traits>

#include <sinter/core/base/dtype.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

struct CastAttributes {
  DType dtype = DType::kFloat32;

  bool operator==(const CastAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("dtype", &CastAttributes::dtype)); }
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

}  // namespace sinter::ops
