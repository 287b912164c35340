// The place of the largest or the smallest element along an axis.
#pragma once

#include <cstdint>

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// The int64 index of the largest element along `axis`, which disappears or, with keep_dims, stays with
/// extent 1. The first of equal elements wins, and NaN counts as largest. Any dtype, rank >= 1. Throws
/// InvalidArgument if the axis is out of range, or has no elements while the result would have some.
Tensor argmax(const Tensor& x, int64_t axis, const ReduceOptions& options = {});
/// The same over all elements in row-major order: an int64 scalar. Rank 0 is allowed.
Tensor argmax(const Tensor& x);

/// The same of the smallest element, of which NaN counts as smallest.
Tensor argmin(const Tensor& x, int64_t axis, const ReduceOptions& options = {});
Tensor argmin(const Tensor& x);

}  // namespace sinter::ops
