// Arithmetic of a tensor with numbers.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// y = scale * x + shift, element by element; every operator between a tensor and a number is one of these.
/// Floating-point dtypes, where scale and shift are rounded to the dtype's compute type first; and integers,
/// which wrap around on overflow and need scale and shift to be whole numbers. Throws InvalidArgument for
/// bool.
Tensor affine(const Tensor& x, double scale, double shift);

}  // namespace sinter::ops
