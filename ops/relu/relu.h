// Rectified linear unit.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// y = max(x, 0), element by element; NaN stays NaN. Any shape, floating-point dtypes.
/// The gradient at x = 0 is 0. Source: V. Nair, G. Hinton, "Rectified linear units improve restricted
/// Boltzmann machines", ICML 2010.
Tensor relu(const Tensor& x);

/// The gradient of relu: dy where y > 0, else 0. Reads relu's output, so that its input can be freed.
Tensor relu_grad(const Tensor& y, const Tensor& dy);

}  // namespace sinter::ops
