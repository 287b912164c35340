// The k largest elements along an axis.
#pragma once

#include <cstdint>

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct TopK {
  Tensor values;   ///< in descending order; the axis has extent k
  Tensor indices;  ///< int64 places of the values along the axis of x
};

/// The k largest elements along `axis`, largest first; the first of equal elements comes first, and NaN
/// counts as largest. Any dtype, rank >= 1; the values are differentiable. Throws InvalidArgument unless 0 <=
/// k <= the extent of the axis.
TopK topk(const Tensor& x, int64_t k, int64_t axis = -1);

namespace vjp {
/// The gradient of topk: dy at `indices` along `axis`, 0 elsewhere, in a tensor whose axis has `extent`
/// elements. The indices of a line are distinct. One that is out of range throws InvalidArgument on the CPU
/// and is skipped on a GPU.
Tensor topk(const Tensor& dy, const Tensor& indices, int64_t extent, int64_t axis);
}  // namespace vjp

}  // namespace sinter::ops
