// Index arithmetic for the references of samples, one plain step at a time.
#pragma once

#include <vector>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// The index along every axis of element `flat`.
inline std::vector<int64_t> unravel(const Shape& shape, int64_t flat) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

/// The inverse of unravel.
inline int64_t ravel(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    flat = flat * shape[axis] + index[static_cast<size_t>(axis)];
  return flat;
}

/// The element of a tensor of shape `input` that lands at element `flat` when it is broadcast to `output`.
inline int64_t broadcast_index(const Shape& output, const Shape& input, int64_t flat) {
  const std::vector<int64_t> index = unravel(output, flat);
  std::vector<int64_t> own(static_cast<size_t>(input.rank()));
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = input[static_cast<int>(i)] == 1 ? 0 : index[index.size() - own.size() + i];
  }
  return ravel(input, own);
}

}  // namespace sinter::ops
