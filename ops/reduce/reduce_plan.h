// How a kernel walks over a reduction: any set of axes brought to one canonical form. Host code without
// devices, so that every backend and a unit test can use it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// Which axes of a tensor are reduced.
using AxisMask = std::array<bool, kMaxRank>;

/// The mask of `axes` in [-rank, rank); none given: all. Throws InvalidArgument, tagged, for an axis out of
/// range or named twice.
inline AxisMask reduced_axes(std::span<const int64_t> axes, int rank, const char* tag) {
  AxisMask mask{};
  for (int axis = 0; axis < rank; ++axis) mask[static_cast<size_t>(axis)] = axes.empty();
  for (int64_t axis : axes) {
    bool& reduced = mask[static_cast<size_t>(normalize_axis(axis, rank, tag))];
    SINTER_CHECK(!reduced, "[{}] axis {} is named twice", tag, axis);
    reduced = true;
  }
  return mask;
}

/// The axes of `x` along which a tensor of `shape` is repeated when it is broadcast to the shape of x.
inline AxisMask repeated_axes(const Shape& x, const Shape& shape) {
  AxisMask mask{};
  for (int axis = 1; axis <= x.rank(); ++axis) {
    mask[static_cast<size_t>(x.rank() - axis)] = axis > shape.rank() || (shape[-axis] == 1 && x[-axis] != 1);
  }
  return mask;
}

/// The shape of a reduction of x.
inline Shape reduced_shape(const Shape& x, const AxisMask& mask, bool keep_dims) {
  std::array<int64_t, kMaxRank> extents{};
  size_t rank = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!mask[static_cast<size_t>(axis)]) {
      extents[rank++] = x[axis];
    } else if (keep_dims) {
      extents[rank++] = 1;
    }
  }
  return Shape(std::span<const int64_t>(extents.data(), rank));
}

/// Some of a tensor's axes, outermost first, walked in row-major order.
struct AxisWalk {
  int rank = 0;
  std::array<int64_t, kMaxRank> extents{}, strides{};

  void push(int64_t extent, int64_t stride) {
    extents[static_cast<size_t>(rank)] = extent;
    strides[static_cast<size_t>(rank++)] = stride;
  }
  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= extents[static_cast<size_t>(i)];
    return product;
  }
  /// Where element `index` of the walk lies.
  int64_t offset(int64_t index) const {
    int64_t sum = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const auto a = static_cast<size_t>(i);
      sum += index % extents[a] * strides[a];
      index /= extents[a];
    }
    return sum;
  }
};

/// The tensor as dense blocks of `rows` x `columns` elements, one block for every index of `kept` and
/// `reduced`. Output number k * columns + c is the reduction of column c over the rows of all the blocks (k,
/// *). Neighbouring axes of one kind are merged and axes of extent 1 dropped, so that a tensor in NCHW
/// reduced to its channels has reduced = N, kept = C, rows = H * W, columns = 1, and one in NHWC has rows = N
/// * H * W, columns = C and a single block.
struct ReducePlan {
  AxisWalk kept, reduced;
  int64_t rows = 1;
  int64_t columns = 1;

  int64_t outputs() const { return kept.count() * columns; }
  /// Elements that go into one output.
  int64_t terms() const { return reduced.count() * rows; }
};

/// `x` has at least one element.
inline ReducePlan plan_reduction(const Shape& x, const AxisMask& mask) {
  struct Group {
    int64_t extent, stride;
    bool reduced;
  };
  std::array<Group, kMaxRank> groups{};
  size_t count = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x[axis] == 1) continue;
    const bool reduced = mask[static_cast<size_t>(axis)];
    if (count > 0 && groups[count - 1].reduced == reduced) {
      groups[count - 1].extent *= x[axis];
      groups[count - 1].stride = x.stride(axis);
    } else {
      groups[count++] = {x[axis], x.stride(axis), reduced};
    }
  }
  ReducePlan plan;
  if (count > 0 && !groups[count - 1].reduced) plan.columns = groups[--count].extent;
  if (count > 0) plan.rows = groups[--count].extent;
  for (size_t i = 0; i < count; ++i) {
    (groups[i].reduced ? plan.reduced : plan.kept).push(groups[i].extent, groups[i].stride);
  }
  return plan;
}

}  // namespace sinter::ops
