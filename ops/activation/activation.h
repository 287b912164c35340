// fused::Activation functions, element by element. All keep the shape and the dtype and take the
// floating-point dtypes; the 16-bit types compute in float32 and round once.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// max(x, 0); NaN stays NaN. The gradient at x = 0 is 0. Source: V. Nair, G. Hinton, "Rectified linear units
/// improve restricted Boltzmann machines", ICML 2010.
Tensor relu(const Tensor& x);

namespace vjp {
/// The gradient of relu: 0 where y <= 0, else dy, also where y is NaN. Reads relu's output, so that its input
/// can be freed.
Tensor relu(const Tensor& dy, const Tensor& y);
}  // namespace vjp

/// 1 / (1 + exp(-x)).
Tensor sigmoid(const Tensor& x);

/// x * sigmoid(x). Source: S. Elfwing, E. Uchibe, K. Doya, "Sigmoid-weighted linear units for neural network
/// function approximation in reinforcement learning", 2017.
Tensor silu(const Tensor& x);

/// x * Phi(x), Phi being the distribution function of the standard normal distribution; computed with erf,
/// not with the tanh approximation. Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units (GELUs)",
/// 2016.
Tensor gelu(const Tensor& x);

/// min(max(x / 6 + 1/2, 0), 1): sigmoid in three straight lines. The gradient at -3, at 3 and at NaN is 0.
/// Source: A. Howard et al., "Searching for MobileNetV3", ICCV 2019.
Tensor hardsigmoid(const Tensor& x);

/// x * hardsigmoid(x), and 0 at minus infinity. The gradient is 0 at -3 and 1 at 3. Source: A. Howard et al.,
/// "Searching for MobileNetV3", ICCV 2019.
Tensor hardswish(const Tensor& x);

/// log(1 + exp(beta x)) / beta: relu with a round corner, the tighter the larger beta, which must be > 0.
/// Source: C. Dugas et al., "Incorporating second-order functional knowledge for better option pricing", NIPS
/// 2000.
Tensor softplus(const Tensor& x, double beta = 1.0);

/// x where x > 0, else negative_slope * x, as is the gradient at 0. Source: A. Maas, A. Hannun, A. Ng,
/// "Rectifier nonlinearities improve neural network acoustic models", ICML 2013. With a slope that is
/// learned: ops::prelu.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);

/// min(max(x, 0), 6); NaN stays NaN. The gradient at 0 and at 6 is 0.
Tensor relu6(const Tensor& x);

/// x where x > 0, else alpha * (exp(x) - 1). Source: D. Clevert, T. Unterthiner, S. Hochreiter, "Fast and
/// accurate deep network learning by exponential linear units (ELUs)", ICLR 2016.
Tensor elu(const Tensor& x, double alpha = 1.0);

/// x * tanh(softplus(x)). Source: D. Misra, "Mish: a self regularized non-monotonic activation function",
/// BMVC 2020.
Tensor mish(const Tensor& x);

}  // namespace sinter::ops
