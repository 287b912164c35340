// Reverse-mode differentiation of what was computed eagerly.
#pragma once

#include <sinter/core/op/node.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct BackwardOptions {
  /// The gradient of `result` to start from, of its spec; undefined: 1, and `result` must have one element.
  Tensor gradient = {};
  /// Keeps the saved tensors, so that backward can run again through the same graph. With create_graph they
  /// are kept in any case.
  bool retain_graph = false;
  /// Records how the gradients are computed, so that what they leave in grad() can be differentiated in its
  /// turn; as of GradOptions. grad() then holds the graph, and the graph its leaves: set_grad({}) frees both.
  bool create_graph = false;
};

/// Adds the gradient of `result` to grad() of every leaf it was computed from that requires one.
/// Gradients accumulate over calls: clear them with set_grad({}) (or nn::Optimizer::zero_grad).
/// Throws InvalidArgument if `result` was not recorded, if its graph was already released by an earlier call,
/// or if a tensor that a gradient reads was changed in place since the forward call.
void backward(const Tensor& result, const BackwardOptions& options = {});

}  // namespace sinter
