// Functions of one tensor, element by element, and arithmetic of a tensor with numbers.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// All of these keep the shape and the dtype. The 16-bit types compute in float32 and round once.

/// Floating-point dtypes and integers (which wrap around on overflow). The gradient of abs at 0 is 0.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
/// -1, 0 or 1; 0 for NaN, as in PyTorch. Its gradient is 0.
Tensor sign(const Tensor& x);
Tensor square(const Tensor& x);

/// Floating-point dtypes; outside of the domain (log or sqrt of a negative number) the result is NaN.
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
/// 1 / sqrt(x).
Tensor rsqrt(const Tensor& x);
/// 1 / x.
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
/// The error function 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x.
Tensor erf(const Tensor& x);

/// x to the power of `exponent`, as std::pow: NaN for a negative x with a fractional exponent. Floating-point
/// dtypes.
Tensor pow(const Tensor& x, double exponent);

namespace vjp {
/// The gradient of pow: dy * exponent * x^(exponent - 1), and 0 everywhere for exponent 0.
Tensor pow(const Tensor& dy, const Tensor& x, double exponent);
}  // namespace vjp

/// min(max(x, low), high); NaN stays NaN. Any dtype but bool; the bounds may be infinite, for integers they
/// are narrowed to the whole numbers between them, and for 16 bits rounded to the dtype. Throws
/// InvalidArgument unless low <= high, and for integers unless a whole number lies between them.
Tensor clip(const Tensor& x, double low, double high);

namespace vjp {
/// The gradient of clip: dy where low <= x <= high, else 0, also where x is NaN.
Tensor clip(const Tensor& dy, const Tensor& x, double low, double high);
}  // namespace vjp

/// scale * x + shift; every operator between a tensor and a number is one of these. Floating-point dtypes,
/// where scale and shift are rounded to the dtype's compute type first; and integers, which wrap around on
/// overflow and need scale and shift to be whole numbers. Throws InvalidArgument for bool.
Tensor affine(const Tensor& x, double scale, double shift);

}  // namespace sinter::ops
