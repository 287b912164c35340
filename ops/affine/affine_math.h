// The attributes and the maths of affine, for every backend.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

struct AffineAttributes {
  double scale = 1.0;
  double shift = 0.0;

  bool operator==(const AffineAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("scale", &AffineAttributes::scale), field("shift", &AffineAttributes::shift));
  }
};

/// scale * x + shift in the compute type C. Integers compute modulo 2^64 and are cut to their own width,
/// which is the same as wrapping around in it.
template <class C>
struct AffineFunctor {
  using Number = std::conditional_t<std::is_integral_v<C>, int64_t, C>;
  using Wide = std::conditional_t<std::is_integral_v<C>, uint64_t, C>;
  Wide scale, shift;

  explicit AffineFunctor(const AffineAttributes& attributes)
      : scale(static_cast<Wide>(static_cast<Number>(attributes.scale))),
        shift(static_cast<Wide>(static_cast<Number>(attributes.shift))) {}
  SINTER_HOST_DEVICE C operator()(C x) const { return static_cast<C>(scale * static_cast<Wide>(x) + shift); }
};

}  // namespace sinter::ops
