// Other shapes for the same elements: views that share the memory of their input.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct ReshapeAttributes {
  std::vector<int64_t> extents;  ///< of the result; one of them may be -1
  bool operator==(const ReshapeAttributes&) const = default;
  template <class Self = ReshapeAttributes>
  static constexpr auto fields() {
    return std::tuple(field("extents", &Self::extents));
  }
};

/// A view of x with the given extents, in the same row-major order. One extent may be -1: it follows from the
/// others. Any dtype. Throws InvalidArgument if the counts of elements differ or the -1 cannot be determined.
Tensor reshape(const Tensor& x, std::vector<int64_t> extents);

/// A view of x in which the axes from `first_axis` to `last_axis` are one: with 1, (N, C, H, W) becomes (N,
/// C*H*W). A tensor of rank 0 becomes (1,).
Tensor flatten(const Tensor& x, int64_t first_axis, int64_t last_axis = -1);

/// A view of x without `axis`, which must have extent 1; else InvalidArgument.
Tensor squeeze(const Tensor& x, int64_t axis);

/// A view of x with a new axis of extent 1 that stands at index `axis` of the result; negative axes count
/// from the back of the result.
Tensor unsqueeze(const Tensor& x, int64_t axis);

}  // namespace sinter::ops
