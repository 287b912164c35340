// What Tensor::index takes besides numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace sinter {

/// The elements begin, begin + step, ... before end of an axis; negative places count from the back, and what
/// lies beyond the axis is left out, as in Python. Slice() is the whole axis.
struct Slice {
  std::optional<int64_t> begin = {};
  std::optional<int64_t> end = {};
  int64_t step = 1;  ///< > 0

  constexpr Slice() = default;
  constexpr Slice(std::optional<int64_t> b, std::optional<int64_t> e, int64_t s = 1)
      : begin(b), end(e), step(s) {}
};

/// A new axis of extent 1.
struct NewAxis {};
inline constexpr NewAxis kNewAxis;

/// As many whole axes as are left: `x.index({kEllipsis, 0})`. At most once.
struct Ellipsis {};
inline constexpr Ellipsis kEllipsis;

using TensorIndex = std::variant<int64_t, Slice, NewAxis, Ellipsis>;

}  // namespace sinter
