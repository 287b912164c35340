// The hooks of tensors as the walk over recorded calls sees them.
#pragma once

#include <sinter/core/op/node.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::autograd {

/// Whether any tensor may have a hook or keeps its gradient. A look at one number.
bool any_hooks();
/// Whether a hook of this leaf lives.
bool has_hook(const Tensor& leaf);
/// What the hooks of output `output` of `node` make of its gradient.
Tensor run_hooks(const Node& node, int output, Tensor gradient);
/// Adds it to grad() of the tensor that was computed there, if retain_grad() asks for that.
void retain(const Node& node, int output, const Tensor& gradient);
/// What the hooks of a leaf make of its gradient.
Tensor run_hooks(const Tensor& leaf, Tensor gradient);

}  // namespace sinter::autograd
