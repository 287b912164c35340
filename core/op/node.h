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
  [[nodiscard]] NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// An array kept for the gradient, with the version its memory had, so that a later in-place change is
/// noticed. Not a tensor, which would own the node that owns this.
struct SavedArray {
  std::shared_ptr<Storage> storage;  // null where the gradient does not read it
  size_t offset_bytes = 0;
  uint64_t version = 0;

  SavedArray() = default;
  explicit SavedArray(const Tensor& tensor)
      : storage(tensor.storage()), offset_bytes(tensor.offset_bytes()), version(tensor.version()) {}
};

/// Where the gradient of one input goes: into the node that computed the input, or into a leaf, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  Tensor leaf;

  bool wanted() const { return node != nullptr || leaf.defined(); }
};

struct Node {
  struct Input {
    Edge edge;
    TensorSpec spec;
    bool present = false;
    SavedArray saved;
  };
  struct Output {
    TensorSpec spec;
    SavedArray saved;
  };

  const Op* op = nullptr;
  Attributes attributes;
  uint64_t sequence = 0;  // grows with every recorded call of the process: a topological order
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  bool released = false;  // the saved arrays are gone: backward ran without retain_graph

  Node() = default;
  /// Long chains are taken apart in a loop: a recursion over 100,000 nodes would overflow the stack.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Drops saved arrays and edges.
  void release();
};

/// Makes `y`, a copy of `x` that was made without a kernel, part of the graph: the gradient of `op` leads
/// from y to x.
void record_copy(const Op& op, const Tensor& x, const Tensor& y);

/// The autograd parts of a tensor that only the engine touches.
struct AutogradAccess {
  static const std::shared_ptr<Node>& node(const Tensor& tensor) { return tensor.impl_->node; }
  static int node_output(const Tensor& tensor) { return tensor.impl_->node_output; }
  static void set_node(const Tensor& tensor, std::shared_ptr<Node> node, int output) {
    tensor.impl_->node = std::move(node);
    tensor.impl_->node_output = output;
  }
  /// True if this is the only handle and the only tensor on its storage, and fills all of it.
  static bool is_unshared(const Tensor& tensor) {
    const auto& storage = tensor.impl_->storage;
    return tensor.impl_.use_count() == 1 && storage.use_count() == 1 &&
           storage->bytes() == tensor.spec().bytes();
  }
};

}  // namespace sinter
