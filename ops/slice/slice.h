// A range of one axis.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct SliceAttributes {
  int64_t axis = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const SliceAttributes&) const = default;
  template <class Self = SliceAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis), field("begin", &Self::begin), field("end", &Self::end));
  }
};

/// The elements begin, ..., end - 1 of `axis`; all three count from the back when negative. Any dtype.
/// A view that shares x's memory if all axes before `axis` have extent 1 (as for axis 0), else a copy.
/// Throws InvalidArgument unless 0 <= begin <= end <= extent.
Tensor slice(const Tensor& x, int64_t axis, int64_t begin, int64_t end);

}  // namespace sinter::ops
