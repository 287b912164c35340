// Classes as vectors.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct OneHotAttributes {
  int64_t classes = 0;
  DType dtype = DType::kFloat32;
  bool operator==(const OneHotAttributes&) const = default;
  template <class Self = OneHotAttributes>
  static constexpr auto fields() {
    return std::tuple(field("classes", &Self::classes), field("dtype", &Self::dtype));
  }
};

/// 1 in place labels[i] of row i and 0 in its others: labels of any shape and dtype int64, to (labels...,
/// classes) of any dtype. A label outside [0, classes) is an InvalidArgument on the CPU; on a GPU it gives a
/// row of NaN (0 for integer dtypes). cross_entropy takes classes as they are; this is for mixing them.
Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype = DType::kFloat32);

}  // namespace sinter::ops
