// Which elements are numbers, and whether two tensors agree.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Floating-point dtypes, to bool; no gradient.
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

struct ClosenessOptions {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;  ///< NaN agrees with NaN
};

/// Whether |a - b| <= atol + rtol |b| for all elements, or both are the same infinity. Shapes broadcast; one
/// floating-point dtype. Computed in float64, on the device; waits for it. torch.allclose.
bool allclose(const Tensor& a, const Tensor& b, const ClosenessOptions& options = {});

}  // namespace sinter::ops
