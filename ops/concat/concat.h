// Joining tensors along an axis, and taking them apart again.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct ConcatAttributes {
  int64_t axis = 0;
  bool operator==(const ConcatAttributes&) const = default;
  template <class Self = ConcatAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis));
  }
};

/// The tensors one after the other along `axis` (from the back when negative). Any dtype, the same for all.
/// Throws InvalidArgument if there are none, or if ranks, dtypes or other extents differ.
Tensor concat(const std::vector<Tensor>& tensors, int64_t axis);

/// The tensors, all of one shape, along a new axis that stands at index `axis` of the result (from the back
/// when negative). Any dtype, the same for all. Throws InvalidArgument if there are none, or if shapes or
/// dtypes differ.
Tensor stack(const std::vector<Tensor>& tensors, int64_t axis = 0);

/// The inverse of concat: parts of these extents along `axis`, which they must fill; else InvalidArgument.
/// Each is a slice(), and so a view where that is one.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int64_t axis = 0);
/// Parts of `extent` > 0 along `axis`, of which the last may be smaller.
std::vector<Tensor> split(const Tensor& x, int64_t extent, int64_t axis = 0);
/// At most `chunks` > 0 parts of equal extent along `axis`, of which the last may be smaller, as torch.chunk.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t axis = 0);

}  // namespace sinter::ops
