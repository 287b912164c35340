// Gradients of tensors with respect to any tensors, also as tensors that can be differentiated again.
#pragma once

#include <vector>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct GradOptions {
  /// The gradients of `results` to start from, one for each, of its spec; undefined ones, and none at all: 1,
  /// and the result must have one element.
  std::vector<Tensor> gradients = {};
  /// Keeps the saved tensors, so that backward() or grad() can run again through the same graph. With
  /// create_graph they are kept in any case.
  bool retain_graph = false;
  /// Records how the gradients are computed, so that they can be differentiated in their turn: for gradient
  /// penalties and second derivatives. Throws Unsupported, which names the op, where one on the way has a
  /// gradient that has none itself.
  bool create_graph = false;
  /// Gives an undefined tensor for an input that the results were not computed from, in place of throwing.
  bool allow_unused = false;
};

/// The gradients of the sum of `results` with respect to each of `inputs`, which may be leaves or what ops
/// computed on the way. grad() of no tensor changes, and only those rules run that lead to an input. Code
/// that a job traces may call it: the gradients then are part of the job.
///
///   Tensor slope = grad(critic(x).sum(), x, {.create_graph = true});
///   backward(ops::square(slope.flatten(1).norm(1) - 1.0).mean());  // a gradient penalty
///
/// Throws InvalidArgument for a result without a history, an input that does not require a gradient, or that
/// the results were not computed from, a graph that an earlier call has released, and a tensor that a
/// gradient reads and that was changed in place.
std::vector<Tensor> grad(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});
Tensor grad(const Tensor& result, const Tensor& input, const GradOptions& options = {});

}  // namespace sinter
