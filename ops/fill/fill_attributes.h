// The attributes of fill_ and full, which their kernels read.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct FillAttributes {
  double value = 0.0;

  bool operator==(const FillAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("value", &FillAttributes::value)); }
};

struct FullAttributes {
  double value = 0.0;
  Shape shape = {};
  DType dtype = DType::kFloat32;
  Device device = {};

  bool operator==(const FullAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("value", &FullAttributes::value), field("shape", &FullAttributes::shape),
                      field("dtype", &FullAttributes::dtype), field("device", &FullAttributes::device));
  }
};

}  // namespace sinter::ops
