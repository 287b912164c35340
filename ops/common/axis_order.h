// Attributes that name axes, for tensors whose axes are put in another order (LayoutRule::Reordered): `order`
// says of axis i of the new tensors which axis of the old ones it was.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sinter/core/base/shape.h>
#include <sinter/core/op/attributes.h>

namespace sinter::ops {

/// Where `axis`, from the back when negative, lies in the new order.
inline int64_t reordered_axis(int64_t axis, std::span<const int64_t> order) {
  const auto rank = static_cast<int64_t>(order.size());
  return std::ranges::find(order, axis < 0 ? axis + rank : axis) - order.begin();
}

/// Whether the axes for which `mask` is `which` follow each other as before.
inline bool keeps_order(const std::array<bool, kMaxRank>& mask, bool which, std::span<const int64_t> order) {
  int64_t last = -1;
  for (const int64_t axis : order) {
    if (mask[static_cast<size_t>(axis)] != which) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

/// For attributes with a field `axis`.
inline std::optional<Attributes> reorder_axis(const Attributes& attributes, std::span<const int64_t> order) {
  return attributes.with("axis", reordered_axis(*attributes.find<int64_t>("axis"), order));
}

}  // namespace sinter::ops
