// The elements of a tensor in the opposite order.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct FlipAttributes {
  std::vector<int64_t> axes;
  bool operator==(const FlipAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("axes", &FlipAttributes::axes)); }
};

/// A copy of x whose elements lie in the opposite order along each of `axes`, from the back when negative:
/// flip(images, {-1}) mirrors images under NCHW. Any dtype. Throws InvalidArgument unless there is an axis,
/// and for one that is out of range or named twice.
Tensor flip(const Tensor& x, std::vector<int64_t> axes);

}  // namespace sinter::ops
