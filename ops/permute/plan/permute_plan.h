// How to permute: host logic that every device's kernel shares.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// A permutation in its simplest form: no axis of extent 1, and no two axes that stay neighbours in the same
/// order.
struct PermutePlan {
  int rank = 0;
  std::array<int64_t, kMaxRank> extents{};  ///< of the input; the first `rank` count
  std::array<int, kMaxRank> axes{};         ///< output axis i is input axis axes[i]

  int64_t extent(int input_axis) const { return extents[static_cast<size_t>(input_axis)]; }
  int input_axis(int output_axis) const { return axes[static_cast<size_t>(output_axis)]; }
  int output_axis(int input_axis) const {
    return static_cast<int>(std::find(axes.begin(), axes.end(), input_axis) - axes.begin());
  }
  /// Elements from one index of input axis `axis` to the next.
  int64_t input_stride(int axis) const;
  /// Elements from one index of output axis `axis` to the next.
  int64_t output_stride(int axis) const;
  /// The elements keep their order.
  bool is_copy() const { return rank <= 1; }
  /// The last two axes make a matrix that is transposed, or a batch of such along a first axis.
  bool is_transpose() const { return rank == 2 || (rank == 3 && axes[0] == 0); }
  /// True if the last axis stays the last one, so that whole rows move.
  bool keeps_last() const { return rank == 0 || input_axis(rank - 1) == rank - 1; }
};

/// `axes` is a permutation of 0, ..., rank - 1. A tensor without elements gives a copy of rank 0.
PermutePlan plan_permute(const Shape& shape, std::span<const int> axes);

/// The axes of a permutation of `rank` axes, negative ones counted from the back. Throws InvalidArgument
/// unless every axis is there once.
std::array<int, kMaxRank> check_permutation(std::span<const int64_t> axes, int rank);

}  // namespace sinter::ops
