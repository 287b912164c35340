// How a kernel walks over tensors that are broadcast to one shape: the fewest axes that describe it, and each
// input's step along them. Host code without devices, so that every backend and a unit test can use it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// The output's axes without those of extent 1 and with neighbours merged wherever all inputs allow it,
/// outermost first. There is always at least one axis. A stride counts elements of its input and is 0 where
/// the input is repeated; along the last axis every stride is 0 or 1.
template <size_t kInputs>
struct BroadcastPlan {
  int rank = 0;
  std::array<int64_t, kMaxRank> extents{};
  std::array<std::array<int64_t, kMaxRank>, kInputs> strides{};  // [input][axis]

  int64_t inner() const { return extents[static_cast<size_t>(rank - 1)]; }
  bool steps(size_t input) const { return strides[input][static_cast<size_t>(rank - 1)] != 0; }
  /// No input is repeated: their elements lie as the output's do.
  bool is_plain() const {
    for (size_t k = 0; k < kInputs; ++k) {
      if (!steps(k)) return false;
    }
    return rank == 1;
  }
};

/// Each input can be broadcast to `output`.
template <size_t kInputs>
BroadcastPlan<kInputs> plan_broadcast(const Shape& output, const std::array<Shape, kInputs>& inputs) {
  BroadcastPlan<kInputs> plan;  // filled innermost axis first, then turned around
  std::array<int64_t, kInputs> next_stride;
  next_stride.fill(1);
  for (int axis = 1; axis <= output.rank(); ++axis) {
    const int64_t extent = output[-axis];
    if (extent == 1) continue;
    std::array<int64_t, kInputs> stride;
    bool merges = plan.rank > 0;
    for (size_t k = 0; k < kInputs; ++k) {
      const int64_t own = axis <= inputs[k].rank() ? inputs[k][-axis] : 1;
      stride[k] = own == 1 ? 0 : next_stride[k];
      next_stride[k] *= own;
      if (plan.rank == 0) continue;
      const auto last = static_cast<size_t>(plan.rank - 1);
      merges = merges && stride[k] == plan.strides[k][last] * plan.extents[last];
    }
    if (merges) {
      plan.extents[static_cast<size_t>(plan.rank - 1)] *= extent;
      continue;
    }
    for (size_t k = 0; k < kInputs; ++k) plan.strides[k][static_cast<size_t>(plan.rank)] = stride[k];
    plan.extents[static_cast<size_t>(plan.rank++)] = extent;
  }
  if (plan.rank == 0) {
    plan.rank = 1;
    plan.extents[0] = 1;
    for (auto& strides : plan.strides) strides[0] = 1;
  }
  std::reverse(plan.extents.begin(), plan.extents.begin() + plan.rank);
  for (auto& strides : plan.strides) std::reverse(strides.begin(), strides.begin() + plan.rank);
  return plan;
}

/// Walks over the output's elements [begin, end) in pieces of the innermost axis: calls
/// `body(first, count, offsets)`, `first` being the piece's first element and offsets[k] that of input k.
template <size_t kInputs, class Body>
void for_each_run(const BroadcastPlan<kInputs>& plan, int64_t begin, int64_t end, Body&& body) {
  const int outer = plan.rank - 1;
  const int64_t inner = plan.inner();
  std::array<int64_t, kMaxRank> index{};
  std::array<int64_t, kInputs> base{};
  int64_t row = begin / inner;
  for (int axis = outer - 1; axis >= 0; --axis) {
    const auto a = static_cast<size_t>(axis);
    index[a] = row % plan.extents[a];
    row /= plan.extents[a];
    for (size_t k = 0; k < kInputs; ++k) base[k] += index[a] * plan.strides[k][a];
  }
  for (int64_t column = begin % inner; begin < end; column = 0) {
    const int64_t count = std::min(inner - column, end - begin);
    std::array<int64_t, kInputs> offsets = base;
    for (size_t k = 0; k < kInputs; ++k) offsets[k] += plan.steps(k) ? column : 0;
    body(begin, count, offsets);
    begin += count;
    for (int axis = outer - 1; axis >= 0; --axis) {  // the next row
      const auto a = static_cast<size_t>(axis);
      const bool carry = ++index[a] == plan.extents[a];
      for (size_t k = 0; k < kInputs; ++k)
        base[k] += carry ? -(index[a] - 1) * plan.strides[k][a] : plan.strides[k][a];
      if (!carry) break;
      index[a] = 0;
    }
  }
}

}  // namespace sinter::ops
