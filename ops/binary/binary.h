// Arithmetic and comparison of two tensors, element by element, with broadcasting.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Element by element under NumPy's broadcasting rules: shapes are aligned at their last axes, and an axis of
/// extent 1 (or a missing one) is repeated. Both tensors have one dtype; nothing is promoted. The 16-bit
/// types compute in float32 and round once; integers wrap around on overflow. Throws InvalidArgument for
/// unequal dtypes, for bool, and for shapes that cannot be broadcast together.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// a / b, for floating-point dtypes only.
Tensor div(const Tensor& a, const Tensor& b);

/// a * b, for floating-point dtypes only, and 0 if a or b is 0, whatever the other one is: as a weight or a
/// mask takes out a term that may be infinite or NaN. What was taken out so has no gradient, in neither of
/// the two. TensorFlow's multiply_no_nan, for both factors.
Tensor mul_no_nan(const Tensor& a, const Tensor& b);

/// The larger and the smaller of two elements; NaN if either is NaN. Where both are equal, half of the
/// gradient goes to each.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

/// Comparisons give bool tensors and have no gradient. Any dtype, bool included; every comparison with NaN is
/// false, but for not_equal, which is true.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);

/// Of truth: every number but 0 is true, NaN too. Any dtype, to bool; no gradient.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

namespace detail {
/// A scalar of the dtype of `beside`, for the op of that name; InvalidArgument, in the op's name, if the
/// dtype cannot represent it.
Tensor number_beside(const char* op, double number, const Tensor& beside);
}  // namespace detail

namespace vjp {
/// The gradient of maximum (or minimum) with respect to `a`, in the shape of dy, which is the broadcast
/// shape: dy where a is chosen, dy / 2 where a equals b, else 0. By symmetry maximum_grad(b, a, dy) is the
/// gradient of b.
Tensor maximum(const Tensor& dy, const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& dy, const Tensor& a, const Tensor& b);

/// The gradient of mul_no_nan with respect to `a`, in the shape of dy, which is the broadcast shape:
/// mul_no_nan(dy, b), but 0 where a is 0 and b is not finite. By symmetry mul_no_nan_grad(b, a, dy) is the
/// gradient of b.
Tensor mul_no_nan(const Tensor& dy, const Tensor& a, const Tensor& b);
}  // namespace vjp

}  // namespace sinter::ops
