// A row-major tensor seen from one axis: (outer, extent, inner).
#pragma once

#include <sinter/core/base/shape.h>

namespace sinter::ops {

struct AxisSplit {
  int64_t outer = 1;   ///< product of the extents before the axis
  int64_t extent = 1;  ///< of the axis
  int64_t inner = 1;   ///< product of the extents behind it: the distance between neighbours along the axis
};

/// `axis` in [0, rank).
inline AxisSplit split_at(const Shape& shape, int axis) {
  return {shape.count(0, axis), shape[axis], shape.stride(axis)};
}

}  // namespace sinter::ops
