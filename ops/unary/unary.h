// Functions of one tensor, element by element.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// All of these keep the shape and the dtype. The 16-bit types compute in float32 and round once.

/// Floating-point dtypes and integers (which wrap around on overflow). The gradient of abs at 0 is 0.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
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
/// 1 / (1 + exp(-x)).
Tensor sigmoid(const Tensor& x);
/// x * sigmoid(x). Source: S. Elfwing, E. Uchibe, K. Doya, "Sigmoid-weighted linear units for neural network
/// function approximation in reinforcement learning", 2017.
Tensor silu(const Tensor& x);
/// x * Phi(x), Phi being the distribution function of the standard normal distribution; computed with erf,
/// not with the tanh approximation. Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units (GELUs)",
/// 2016.
Tensor gelu(const Tensor& x);

}  // namespace sinter::ops
