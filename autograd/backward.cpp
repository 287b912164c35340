// The walk over recorded calls: backward() to all leaves, and grad() to the tensors that are asked for.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad_internal.h>
#include <sinter/autograd/gradient_walk.h>
#include <sinter/autograd/hooks_internal.h>
#include <sinter/core/tensor/trace_access.h>
#include <sinter/ops/binary/binary.h>

namespace sinter {
namespace {

/// Where tensors are in the graph: an output of a call, or a leaf (output -1).
using Place = std::pair<const void*, int>;

Place place_of(const Edge& edge) {
  return edge.node != nullptr ? Place(edge.node.get(), edge.output) : Place(TraceAccess::id(edge.leaf), -1);
}

/// Where the gradient of a tensor that requires one goes.
Edge edge_to(const Tensor& tensor) {
  const auto& node = AutogradAccess::node(tensor);
  return node != nullptr ? Edge{node, AutogradAccess::node_output(tensor), {}} : Edge{nullptr, 0, tensor};
}

/// The part of the graph between results and the tensors whose gradients grad() was asked for: only there
/// rules need to run.
class Targets {
 public:
  Targets(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs) {
    for (const Tensor& input : inputs) places_.insert(place_of(edge_to(input)));
    std::map<uint64_t, const Node*> found;  // by sequence: what a call reads comes before it
    std::vector<const Node*> open;
    const auto meet = [&](const Node* node) {
      if (node != nullptr && found.emplace(node->sequence, node).second) open.push_back(node);
    };
    for (const Tensor& result : results) meet(AutogradAccess::node(result).get());
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      if (node->released) released_ = node->op->name();
      for (const Node::Input& input : node->inputs) meet(input.edge.node.get());
    }
    for (const auto& [sequence, node] : found) {
      if (std::ranges::any_of(node->inputs,
                              [this](const Node::Input& input) { return leads_to(input.edge); }))
        nodes_.insert(node);
    }
  }

  bool is_target(const Place& place) const { return places_.contains(place); }
  /// Whether some target lies behind the call.
  bool leads_to(const Node& node) const { return nodes_.contains(&node); }
  bool leads_to(const Edge& edge) const {
    return edge.wanted() && (is_target(place_of(edge)) || nodes_.contains(edge.node.get()));
  }
  /// The name of a call that was released already; empty if there is none.
  const std::string& released() const { return released_; }

 private:
  std::set<Place> places_;
  std::set<const Node*> nodes_;
  std::string released_;
};

/// What the gradient rule of one recorded call may look at. Where rules are recorded in their turn, what it
/// sees has its history.
class NodeContext final : public GradientContext {
 public:
  NodeContext(const std::shared_ptr<Node>& node, std::span<const Tensor> grads, const Targets* targets,
              bool recorded)
      : node_(node), grads_(grads), targets_(targets), recorded_(recorded) {}

  const Attributes& attributes() const override { return node_->attributes; }
  size_t input_count() const override { return node_->inputs.size(); }
  Tensor input(size_t i) const override {
    const Node::Input& input = node_->inputs.at(i);
    if (!input.present) return {};
    if (!recorded_) [[likely]]
      return restore(input.saved, input.spec, "input", i);
    Tensor value = restore(input.saved, input.spec, "input", i);
    if (input.edge.leaf.defined()) return input.edge.leaf;
    if (input.edge.node != nullptr) AutogradAccess::set_node(value, input.edge.node, input.edge.output);
    return value;
  }
  Tensor output(size_t i) const override {
    const Node::Output& output = node_->outputs.at(i);
    Tensor value = restore(output.saved, output.spec, "output", i);
    // Of outputs without a gradient too: one that comes back to them is an error (check_flow).
    if (recorded_ && is_float(output.spec.dtype)) [[unlikely]]
      AutogradAccess::set_node(value, node_, static_cast<int>(i));
    return value;
  }
  const TensorSpec& input_spec(size_t i) const override { return node_->inputs[i].spec; }
  const TensorSpec& output_spec(size_t i) const override { return node_->outputs[i].spec; }
  Tensor grad(size_t i) const override { return grads_[i]; }
  bool needs(size_t i) const override {
    const Edge& edge = node_->inputs[i].edge;
    return targets_ == nullptr ? edge.wanted() : targets_->leads_to(edge);
  }

 private:
  Tensor restore(const SavedArray& saved, const TensorSpec& spec, const char* kind, size_t i) const {
    SINTER_ASSERT(saved.storage != nullptr,
                  "[{}] the gradient reads {} {}, which gradient_reads does not declare", node_->op->name(),
                  kind, i);
    const uint64_t version = saved.storage->version();
    SINTER_CHECK(
        version == saved.version,
        "[backward] {} {} of '{}' was changed in place after the forward call, but its gradient reads it "
        "(version {}, expected {})",
        kind, i, node_->op->name(), version, saved.version);
    return Tensor::over(saved.storage, saved.offset_bytes, spec);
  }

  const std::shared_ptr<Node>& node_;
  std::span<const Tensor> grads_;
  const Targets* targets_;
  bool recorded_;
};

/// One run of backward(), or of grad() if there are targets.
class Backward {
 public:
  Backward(bool retain_graph, bool create_graph, const Targets* targets)
      : retain_graph_(retain_graph || create_graph), targets_(targets) {
    if (create_graph) {
      rules_.emplace();
    } else {
      no_grad_.emplace();
    }
  }

  void arrive(const Edge& edge, Tensor grad) {
    if (edge.node != nullptr) {
      // Sequence numbers are a topological order: whatever reads a node's outputs was recorded after it.
      walk_.arrive(edge.node->sequence, edge.node, edge.node->outputs.size(),
                   static_cast<size_t>(edge.output), std::move(grad));
    } else if (edge.leaf.defined()) {
      arrive_at_leaf(edge.leaf, std::move(grad));
    }
  }

  void run() {
    walk_.run(
        [this](const std::shared_ptr<Node>& node, std::span<const Tensor> grads) { visit(node, grads); });
    for (auto& [id, sum] : hooked_)
      accumulate(sum.leaf, autograd::run_hooks(sum.leaf, std::move(sum.gradient)));
  }

  /// The gradient of a target; undefined if none arrived.
  Tensor gradient_of(const Tensor& input) const {
    const auto found = captured_.find(place_of(edge_to(input)));
    if (found == captured_.end()) return {};
    return input.is_leaf() && has_hooks_ ? autograd::run_hooks(input, found->second) : found->second;
  }

 private:
  void visit(const std::shared_ptr<Node>& node, std::span<const Tensor> grads) {
    if (has_hooks_) [[unlikely]] {
      go_through(node, with_hooks(*node, grads));
    } else {
      go_through(node, grads);
    }
  }

  void go_through(const std::shared_ptr<Node>& node, std::span<const Tensor> grads) {
    if (targets_ != nullptr) {
      for (size_t i = 0; i < grads.size(); ++i) {
        const Place place(node.get(), static_cast<int>(i));
        if (grads[i].defined() && targets_->is_target(place)) captured_[place] = grads[i];
      }
      if (!targets_->leads_to(*node)) return;
    }
    SINTER_CHECK(
        !node->released,
        "[backward] the graph through '{}' was released by an earlier backward; pass retain_graph = true to "
        "that one",
        node->op->name());
    autograd::check_flow(*node->op, grads);
    if (rules_) rules_->set_op(*node->op);
    const NodeContext context(node, grads, targets_, rules_.has_value());
    std::vector<Tensor> input_grads = node->op->definition.gradient(context);
    SINTER_ASSERT(input_grads.size() == node->inputs.size(),
                  "[{}] the gradient gave {} tensors for {} inputs", node->op->name(), input_grads.size(),
                  node->inputs.size());
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const auto& [edge, spec, present, saved] = node->inputs[i];
      if (!input_grads[i].defined() || !edge.wanted()) continue;
      if (targets_ != nullptr && !targets_->leads_to(edge)) continue;
      SINTER_ASSERT(input_grads[i].spec() == spec, "[{}] the gradient of input {} is {}, expected {}",
                    node->op->name(), i, input_grads[i].spec(), spec);
      arrive(edge, std::move(input_grads[i]));
    }
    if (!retain_graph_) node->release();
  }

  std::vector<Tensor> with_hooks(const Node& node, std::span<const Tensor> grads) const {
    std::vector<Tensor> replaced(grads.begin(), grads.end());
    for (size_t i = 0; i < replaced.size(); ++i) {
      if (!replaced[i].defined()) continue;
      replaced[i] = autograd::run_hooks(node, static_cast<int>(i), replaced[i]);
      if (targets_ == nullptr) autograd::retain(node, static_cast<int>(i), replaced[i]);
    }
    return replaced;
  }

  void arrive_at_leaf(const Tensor& leaf, Tensor grad) {
    if (targets_ != nullptr) {
      Tensor& sum = captured_[Place(TraceAccess::id(leaf), -1)];
      sum = sum.defined() ? ops::add(sum, grad) : std::move(grad);
    } else if (has_hooks_ && autograd::has_hook(leaf)) [[unlikely]] {
      // A hook sees all that arrives at once.
      Sum& sum = hooked_[TraceAccess::id(leaf)];
      sum.leaf = leaf;
      sum.gradient = sum.gradient.defined() ? ops::add(sum.gradient, grad) : std::move(grad);
    } else {
      accumulate(leaf, std::move(grad));
    }
  }

  static void accumulate(const Tensor& leaf, Tensor grad) {
    const Tensor present = leaf.grad();
    leaf.set_grad(present.defined() ? ops::add(present, grad) : own_array(std::move(grad)));
  }

  struct Sum {
    Tensor leaf, gradient;
  };

  const bool retain_graph_;
  const Targets* const targets_;
  const bool has_hooks_ = autograd::any_hooks();
  std::optional<NoGrad> no_grad_;
  std::optional<autograd::RecordedRules> rules_;
  GradientWalk<std::shared_ptr<Node>> walk_;
  std::map<Place, Tensor> captured_;
  std::map<const void*, Sum> hooked_;
};

}  // namespace

void backward(const Tensor& result, const BackwardOptions& options) {
  SINTER_CHECK(
      !result.is_traced(),
      "[backward] the result is traced: a job differentiates its loss itself; for a gradient within the "
      "traced code call grad()");
  SINTER_CHECK(result.requires_grad(),
               "[backward] the tensor has no history: either nothing that it was computed from requires a "
               "gradient, or it was computed while a NoGrad was alive{}",
               grad_enabled() ? "" : ", as one is now");
  const Tensor start = first_gradient(result, options.gradient);
  SINTER_CHECK(!options.create_graph || grad_enabled(),
               "[backward] expected no NoGrad under create_graph, which records, but one is alive");
  Backward walk(options.retain_graph, options.create_graph, nullptr);
  walk.arrive(edge_to(result), start);
  walk.run();
}

void Tensor::backward() const {
  sinter::backward(*this);
}

void Tensor::backward(const BackwardOptions& options) const {
  sinter::backward(*this, options);
}

std::vector<Tensor> autograd::recorded_gradients(const std::vector<Tensor>& results,
                                                 const std::vector<Tensor>& inputs,
                                                 const GradOptions& options, std::string& released) {
  const Targets targets(results, inputs);
  released = targets.released();
  std::vector<Tensor> gradients;
  {
    Backward walk(options.retain_graph, options.create_graph, &targets);
    for (size_t i = 0; i < results.size(); ++i)
      walk.arrive(edge_to(results[i]), start_of(results, i, options));
    walk.run();
    for (const Tensor& input : inputs) {  // a hook runs once, although a tensor may be named twice
      const auto same =
          std::ranges::find_if(inputs, [&](const Tensor& other) { return other.is_same(input); });
      const auto first = static_cast<size_t>(same - inputs.begin());
      gradients.push_back(first < gradients.size() ? gradients[first] : walk.gradient_of(input));
    }
  }
  for (Tensor& gradient : gradients) {
    if (gradient.defined() && !gradient.requires_grad()) gradient = own_array(std::move(gradient));
  }
  return gradients;
}

}  // namespace sinter
