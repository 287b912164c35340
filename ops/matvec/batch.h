// Batches of matrices or vectors that broadcast against each other.
#pragma once

#include <cstdint>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// The shape without its last `item_axes` axes (2 for matrices, 1 for vectors): how many items there are.
inline Shape batch_shape(const Shape& shape, int item_axes) {
  return Shape(shape.extents().first(static_cast<size_t>(shape.rank() - item_axes)));
}

/// For item `i` of a batch of shape `to`, the item of a batch of shape `from` that broadcasting reads.
inline int64_t batch_item(const Shape& from, const Shape& to, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int axis = 1; axis <= from.rank(); ++axis) {
    if (from[-axis] != 1) index += i % to[-axis] * stride;
    stride *= from[-axis];
    i /= to[-axis];
  }
  return index;
}

}  // namespace sinter::ops
