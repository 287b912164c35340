// Reordering of axes.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct PermuteAttributes {
  std::vector<int64_t> axes;  ///< axis i of the result is axis axes[i] of the input
  bool operator==(const PermuteAttributes&) const = default;
  template <class Self = PermuteAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axes", &Self::axes));
  }
};

/// A copy of x with its axes in the order `axes`: axis i of the result is axis axes[i] of x. Negative axes
/// count from the back. Any dtype and rank. Throws InvalidArgument unless `axes` names every axis of x once.
/// NCHW to NHWC is permute(x, {0, 2, 3, 1}), and back {0, 3, 1, 2}.
Tensor permute(const Tensor& x, std::vector<int64_t> axes);

/// A copy of x with two axes exchanged.
Tensor transpose(const Tensor& x, int64_t axis0, int64_t axis1);

}  // namespace sinter::ops
