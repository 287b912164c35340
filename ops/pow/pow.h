// Powers with a constant exponent.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// x to the power of `exponent`, element by element, as std::pow: NaN for a negative x with a fractional
/// exponent. Floating-point dtypes.
Tensor pow(const Tensor& x, double exponent);

/// The gradient of pow: dy * exponent * x^(exponent - 1), and 0 everywhere for exponent 0.
Tensor pow_grad(const Tensor& x, const Tensor& dy, double exponent);

}  // namespace sinter::ops
