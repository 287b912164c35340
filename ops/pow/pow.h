// Powers with a constant exponent.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// x to the power of `exponent`, element by element, as std::pow: NaN for a negative x with a fractional exponent.
/// Floating-point dtypes. The gradient is exponent * x^(exponent - 1), and 0 everywhere for exponent 0.
Tensor pow(const Tensor& x, double exponent);

}  // namespace sinter::ops
