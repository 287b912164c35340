// Reverse-mode differentiation of a job's graph.
#pragma once

#include <map>
#include <vector>

#include <sinter/core/graph/tracer.h>

namespace sinter {

/// The gradient of one leaf: a traced tensor of the leaf's spec.
struct LeafGradient {
  GraphValue* leaf = nullptr;
  Tensor gradient;
};

/// Adds the gradient of `result`, a traced tensor, to the graph of `tracer`, at its place, and gives that of
/// every leaf which `result` was computed from through differentiable uses, in the order in which the leaves
/// came into the graph. It takes the very calls that backward() makes, in the same order, so that gradients
/// agree with eager ones bit for bit. `start` is the gradient of `result`; undefined: 1, and `result` must
/// have one element. `sums` has what leaves have had before, by leaf: their gradients are added to it one by
/// one, as backward() adds them to grad(). Throws InvalidArgument if nothing that `result` was computed from
/// requires a gradient, and where backward() would refuse because a leaf that a gradient reads was changed in
/// place after it was read.
std::vector<LeafGradient> differentiate(Tracer& tracer, const Tensor& result, const Tensor& start = {},
                                        std::map<const GraphValue*, Tensor> sums = {});

}  // namespace sinter
