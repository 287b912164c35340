// Tensors with one value everywhere.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Sets every element of `target`. The value is rounded to a floating-point dtype; an integer or bool dtype
/// must be able to represent it exactly, else InvalidArgument. Also throws if the gradient of `target` is
/// being recorded.
void fill_(const Tensor& target, double value);

/// A new tensor filled on its device, with the rules of fill_.
Tensor full(const Shape& shape, double value, DType dtype = DType::kFloat32, Device device = {});
Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});
Tensor ones(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});

/// A new tensor with the shape, dtype and device of x.
Tensor full_like(const Tensor& x, double value);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);

}  // namespace sinter::ops
