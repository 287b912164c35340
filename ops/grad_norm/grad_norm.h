// The Euclidean norm of many tensors together.
#pragma once

#include <span>

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

namespace update {
/// sqrt(the sum of all squares in `gradients`): tensors of any shapes and floating-point dtypes on one
/// device. The result is a float64 scalar there; squares are taken and summed in double precision, so that
/// nothing finite overflows, in an order that depends on the shapes alone. Infinity and NaN show in the
/// result. Throws InvalidArgument without a tensor. Not differentiable.
Tensor grad_norm(std::span<const Tensor> gradients);
}  // namespace update

}  // namespace sinter::ops
