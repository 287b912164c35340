// A choice between two tensors, element by element.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// a where `condition` (bool) holds, else b, under NumPy's broadcasting rules for all three. a and b have one
/// dtype, any; what is not chosen has no part in the result and gets the gradient 0, even where it is
/// infinite or NaN. Throws InvalidArgument for other dtypes and for shapes that cannot be broadcast together.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

/// where() with a number, rounded to the other tensor's dtype, on one side.
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);

/// x with `value` where `mask` (bool) holds: where(mask, value, x), torch's masked_fill.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

}  // namespace sinter::ops
