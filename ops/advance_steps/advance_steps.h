// The numbers of updates that an optimiser counts for its parameters.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

namespace update {
/// Adds 1 to the elements of `counts`, int64 (n), in place: to all of them, or to those whose element of
/// `mask`, bool (n), is true. Nothing changes if `gradient_factor`, a float32 scalar, is given and not
/// finite: the update ops skip such a step. Throws InvalidArgument for other shapes and dtypes.
void advance_steps(const Tensor& counts, const Tensor& mask = {}, const Tensor& gradient_factor = {});
}  // namespace update

}  // namespace sinter::ops
