#include <utility>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradient_walk.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>

namespace sinter {
namespace {

/// What the gradient rule of one recorded call may look at.
class NodeContext final : public GradientContext {
 public:
  NodeContext(const Node& node, std::span<const Tensor> grads) : node_(node), grads_(grads) {}

  const Attributes& attributes() const override { return node_.attributes; }
  size_t input_count() const override { return node_.inputs.size(); }
  Tensor input(size_t i) const override {
    const Node::Input& input = node_.inputs.at(i);
    return input.present ? restore(input.saved, input.spec, "input", i) : Tensor();
  }
  Tensor output(size_t i) const override {
    const Node::Output& output = node_.outputs.at(i);
    return restore(output.saved, output.spec, "output", i);
  }
  const TensorSpec& input_spec(size_t i) const override { return node_.inputs[i].spec; }
  const TensorSpec& output_spec(size_t i) const override { return node_.outputs[i].spec; }
  Tensor grad(size_t i) const override { return grads_[i]; }
  bool needs(size_t i) const override { return node_.inputs[i].edge.wanted(); }

 private:
  Tensor restore(const SavedArray& saved, const TensorSpec& spec, const char* kind, size_t i) const {
    SINTER_ASSERT(saved.storage != nullptr,
                  "[{}] the gradient reads {} {}, which gradient_reads does not declare", node_.op->name(),
                  kind, i);
    const uint64_t version = saved.storage->version();
    SINTER_CHECK(
        version == saved.version,
        "[backward] {} {} of '{}' was changed in place after the forward call, but its gradient reads it "
        "(version {}, expected {})",
        kind, i, node_.op->name(), version, saved.version);
    return Tensor::over(saved.storage, saved.offset_bytes, spec);
  }

  const Node& node_;
  std::span<const Tensor> grads_;
};

/// One run of backward.
class Backward {
 public:
  explicit Backward(bool retain_graph) : retain_graph_(retain_graph) {}

  void arrive(const Edge& edge, Tensor grad) {
    if (edge.node != nullptr) {
      // Sequence numbers are a topological order: whatever reads a node's outputs was recorded after it.
      walk_.arrive(edge.node->sequence, edge.node, edge.node->outputs.size(),
                   static_cast<size_t>(edge.output), std::move(grad));
    } else if (edge.leaf.defined()) {
      accumulate(edge.leaf, std::move(grad));
    }
  }

  void run() {
    walk_.run(
        [this](const std::shared_ptr<Node>& node, std::span<const Tensor> grads) { visit(*node, grads); });
  }

 private:
  void visit(Node& node, std::span<const Tensor> grads) {
    SINTER_CHECK(
        !node.released,
        "[backward] the graph through '{}' was released by an earlier backward; pass retain_graph = true to "
        "that one",
        node.op->name());
    std::vector<Tensor> input_grads = node.op->definition.gradient(NodeContext(node, grads));
    SINTER_ASSERT(input_grads.size() == node.inputs.size(), "[{}] the gradient gave {} tensors for {} inputs",
                  node.op->name(), input_grads.size(), node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto& [edge, spec, present, saved] = node.inputs[i];
      if (!edge.wanted() || !input_grads[i].defined()) continue;
      SINTER_ASSERT(input_grads[i].spec() == spec, "[{}] the gradient of input {} is {}, expected {}",
                    node.op->name(), i, input_grads[i].spec(), spec);
      arrive(edge, std::move(input_grads[i]));
    }
    if (!retain_graph_) node.release();
  }

  static void accumulate(const Tensor& leaf, Tensor grad) {
    const Tensor present = leaf.grad();
    if (present.defined()) {
      leaf.set_grad(ops::add(present, grad));
    } else {
      // A gradient rule may hand the same array to several inputs; each leaf gets one of its own, so that
      // changing one gradient in place (clipping) cannot change another.
      leaf.set_grad(AutogradAccess::is_unshared(grad) ? std::move(grad) : ops::copy(grad));
    }
  }

  bool retain_graph_;
  GradientWalk<std::shared_ptr<Node>> walk_;
};

}  // namespace

void backward(const Tensor& result, const BackwardOptions& options) {
  SINTER_CHECK(
      !result.is_traced(),
      "[backward] the result is traced: a job differentiates its loss itself, and gradients of gradients "
      "cannot be traced");
  SINTER_CHECK(result.requires_grad(),
               "[backward] the tensor has no history: either nothing that it was computed from requires a "
               "gradient, or it was computed while a NoGrad was alive{}",
               grad_enabled() ? "" : ", as one is now");
  const Tensor start = first_gradient(result, options.gradient);
  const NoGrad no_grad;
  Backward walk(options.retain_graph);
  const auto& node = AutogradAccess::node(result);
  walk.arrive(
      node != nullptr ? Edge{node, AutogradAccess::node_output(result), {}} : Edge{nullptr, 0, result},
      start);
  walk.run();
}

}  // namespace sinter
