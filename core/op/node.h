// Node: one recorded op call in the graph that backward() walks.
#pragma once

#include <memory>
#include <vector>

#include <sinter/core/op/registry.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

/// Whether calls on this thread are recorded for backward(). True at the start of a thread.
bool grad_enabled();

/// Stops recording on this thread for the guard's lifetime: `NoGrad no_grad;`
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// A tensor kept for the gradient, with the version its memory had, so that a later in-place change is
/// noticed.
struct SavedTensor {
  Tensor tensor;
  uint64_t version = 0;
};

/// Where the gradient of one input goes: into the node that computed the input, or into a leaf, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  Tensor leaf;

  bool wanted() const { return node != nullptr || leaf.defined(); }
};

struct Node {
  const Op* op = nullptr;
  Attributes attributes;
  uint64_t sequence = 0;    // grows with every recorded call of the process: a topological order
  std::vector<Edge> edges;  // one per input
  std::vector<TensorSpec> input_specs, output_specs;
  std::vector<bool> input_present;
  std::vector<SavedTensor> saved_inputs, saved_outputs;  // undefined where the gradient does not read them
  bool released = false;  // the saved tensors are gone: backward ran without retain_graph

  Node() = default;
  /// Long chains are taken apart in a loop: a recursion over 100,000 nodes would overflow the stack.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Drops saved tensors and edges.
  void release();
};

/// The autograd parts of a tensor that only the engine touches.
struct AutogradAccess {
  static const std::shared_ptr<Node>& node(const Tensor& tensor) { return tensor.impl_->node; }
  static int node_output(const Tensor& tensor) { return tensor.impl_->node_output; }
  static void set_node(const Tensor& tensor, std::shared_ptr<Node> node, int output) {
    tensor.impl_->node = std::move(node);
    tensor.impl_->node_output = output;
  }
  /// True if no other handle and no other tensor shares this array.
  static bool is_unshared(const Tensor& tensor) {
    return tensor.impl_.use_count() == 1 && tensor.impl_->storage.use_count() == 1;
  }
};

}  // namespace sinter
