// Products of matrices, and the linear layer.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Which operands are read with their last two axes swapped.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;

  bool operator==(const MatmulOptions&) const = default;
  template <class Self = MatmulOptions>
  static constexpr auto fields() {
    return std::tuple(field("transpose_a", &Self::transpose_a), field("transpose_b", &Self::transpose_b));
  }
};

/// y = a b over the last two axes: a (..., m, k), b (..., k, n), y (..., m, n); the leading axes broadcast.
/// Both of rank two or more (matvec and outer are for vectors) and of one floating-point dtype; the 16-bit
/// ones accumulate in float32. With k = 0 the result is zero. Throws InvalidArgument for shapes or dtypes
/// that do not fit together.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

/// y = x weight^T + bias: x (..., in), weight (out, in), bias (out) or undefined, y (..., out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

namespace vjp {
/// The gradient of linear with respect to weight, (out, in): the sum of dy x^T over all leading axes of
/// dy (..., out) and x (..., in).
Tensor linear_weight(const Tensor& dy, const Tensor& x);
}  // namespace vjp

struct LinearGradients {
  Tensor weight, bias;
};

namespace vjp {
/// linear_grad_weight, and the gradient with respect to bias, (out), the sum of dy over all leading axes, of
/// which there is one at least. Both in one pass over dy where the device can.
LinearGradients linear_weight_bias(const Tensor& dy, const Tensor& x);
}  // namespace vjp

}  // namespace sinter::ops
