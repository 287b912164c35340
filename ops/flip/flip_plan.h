// Which neighbouring axes of a flip are one axis: those that keep their order, and those that do not.
#pragma once

#include <cstdint>

#include <sinter/core/base/shape.h>
#include <sinter/ops/flip/flip.h>
#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {

struct FlipPlan {
  FlipPlan(const Shape& shape, const FlipAttributes& attributes) {
    const AxisMask mask = reduced_axes(attributes.axes, shape.rank(), "flip");
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      const bool flips = mask[static_cast<size_t>(axis)];
      if (rank > 0 && flipped[rank - 1] == flips) {
        extents[rank - 1] *= shape[axis];
      } else {
        extents[rank] = shape[axis];
        flipped[rank++] = flips;
      }
    }
  }
  /// The elements that keep their order and lie side by side.
  int64_t run() const { return rank > 0 && !flipped[rank - 1] ? extents[rank - 1] : 1; }

  int rank = 0;
  int64_t extents[kMaxRank] = {};
  bool flipped[kMaxRank] = {};
};

}  // namespace sinter::ops
