// Joining tensors along an axis.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct ConcatAttributes {
  int64_t axis = 0;
  bool operator==(const ConcatAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("axis", &ConcatAttributes::axis)); }
};

/// The tensors one after the other along `axis` (from the back when negative). Any dtype, the same for all.
/// Throws InvalidArgument if there are none, or if ranks, dtypes or other extents differ.
Tensor concat(const std::vector<Tensor>& tensors, int64_t axis);

}  // namespace sinter::ops
