// The attributes of fill_ and full, which their kernels read.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct FillAttributes {
  double value = 0.0;

  bool operator==(const FillAttributes&) const = default;
  template <class Self = FillAttributes>
  static constexpr auto fields() {
    return std::tuple(field("value", &Self::value));
  }
};

struct FullAttributes {
  double value = 0.0;
  Shape shape = {};
  DType dtype = DType::kFloat32;
  Device device = {};

  bool operator==(const FullAttributes&) const = default;
  template <class Self = FullAttributes>
  static constexpr auto fields() {
    return std::tuple(field("value", &Self::value), field("shape", &Self::shape),
                      field("dtype", &Self::dtype), field("device", &Self::device));
  }
};

}  // namespace sinter::ops
