// Elements picked along one axis by index.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct GatherAttributes {
  int64_t axis = 0;
  bool operator==(const GatherAttributes&) const = default;
  template <class Self = GatherAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis));
  }
};

struct GatherGradAttributes {
  int64_t axis = 0;
  std::vector<int64_t> extents;  ///< of gather's input
  bool operator==(const GatherGradAttributes&) const = default;
  template <class Self = GatherGradAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis), field("extents", &Self::extents));
  }
};

/// y[i, j, k] = x[i, indices[i, j, k], k] for axis 1 of three, and likewise for others; y has the shape of
/// `indices` (int64, rank of x, no larger than x on the other axes). x of any dtype; a negative axis counts
/// from the back. An index outside [0, extent) is an InvalidArgument on the CPU; on a GPU it gives NaN (0 for
/// integer dtypes). The semantics of torch.gather.
Tensor gather(const Tensor& x, int64_t axis, const Tensor& indices);

namespace vjp {
/// The gradient of gather for an input of shape `shape`: dy is added to zeros at the places that gather read,
/// in float32 for the 16-bit dtypes. The order of a sum depends on shapes, indices and alignment alone
/// (deterministic). On a GPU an index out of range adds nothing.
Tensor gather(const Tensor& dy, int64_t axis, const Tensor& indices, const Shape& shape);
}  // namespace vjp

}  // namespace sinter::ops
