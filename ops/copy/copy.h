// Copies of tensors.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// A tensor with the same contents in memory of its own. Any dtype; the gradient passes through.
Tensor copy(const Tensor& x);

/// Overwrites `target` with the contents of `source`. Throws InvalidArgument unless shape, dtype and device
/// are equal, or if a gradient of one of them is being recorded: it would be lost.
void copy_(const Tensor& target, const Tensor& source);

}  // namespace sinter::ops
