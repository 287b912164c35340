#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <sinter/autograd/differentiate.h>
#include <sinter/autograd/grad_internal.h>
#include <sinter/autograd/gradient_walk.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/trace_access.h>
#include <sinter/ops/binary/binary.h>

namespace sinter {
namespace {

bool reads(uint64_t mask, size_t index) {
  return mask == kReadsAll || (index < 64 && (mask >> index & 1) != 0);
}

/// The value that stands for the contents of `tensor` where the traced code is.
GraphValue& value_of(Tracer& tracer, const Tensor& tensor) {
  return *tracer.use_of(tensor).value;
}

/// A leaf whatever version of its contents was read.
GraphValue& first_version(Graph& graph, GraphValue& value) {
  return value.kind == GraphValue::Kind::kLeaf ? graph.memory(value.tensor, GraphValue::Kind::kLeaf) : value;
}

/// The part of the graph between results and the values whose gradients grad() was asked for.
class GraphTargets {
 public:
  GraphTargets(Tracer& tracer, const std::vector<Tensor>& inputs) : graph_(tracer.graph()) {
    for (const Tensor& input : inputs) values_.insert(&first_version(graph_, value_of(tracer, input)));
    for (const GraphNode* node : graph_.nodes()) {
      if (std::ranges::any_of(node->inputs, [this](const GraphUse& use) { return leads_to(use); }))
        nodes_.insert(node);
    }
  }
  bool is_target(GraphValue& value) const { return values_.contains(&first_version(graph_, value)); }
  bool leads_to(const GraphNode& node) const { return nodes_.contains(&node); }
  bool leads_to(const GraphUse& use) const {
    return use.differentiable && (is_target(*use.value) || nodes_.contains(use.value->producer));
  }

 private:
  Graph& graph_;
  std::set<const GraphValue*> values_;
  std::set<const GraphNode*> nodes_;
};

/// What the gradient rule of one node may look at. Where rules are recorded in their turn, gradients flow
/// through what it sees as through what the node read.
class GraphNodeContext final : public GradientContext {
 public:
  GraphNodeContext(const Tracer& tracer, const GraphNode& node, std::span<const Tensor> grads,
                   const GraphTargets* targets, bool recorded)
      : tracer_(tracer), node_(node), grads_(grads), targets_(targets), recorded_(recorded) {}

  const Attributes& attributes() const override { return node_.attributes; }
  size_t input_count() const override { return node_.inputs.size(); }
  Tensor input(size_t i) const override {
    const OpDef& def = node_.definition();
    const size_t declared = def.variadic ? i % def.inputs.size() : i;
    const GraphUse& use = node_.inputs.at(i);
    return value({use.value, use.differentiable && recorded_}, reads(def.gradient_reads.inputs, declared),
                 "input", i);
  }
  Tensor output(size_t i) const override {
    GraphValue* const output = node_.outputs.at(i);
    return value({output, recorded_ && is_float(output->spec.dtype)},
                 reads(node_.definition().gradient_reads.outputs, i), "output", i);
  }
  const TensorSpec& input_spec(size_t i) const override {
    static const TensorSpec none;  // of an absent optional input, as in eager code
    const GraphValue* const value = node_.input(i);
    return value != nullptr ? value->spec : none;
  }
  const TensorSpec& output_spec(size_t i) const override { return node_.outputs[i]->spec; }
  Tensor grad(size_t i) const override { return grads_[i]; }
  bool needs(size_t i) const override {
    return targets_ == nullptr ? node_.inputs[i].differentiable : targets_->leads_to(node_.inputs[i]);
  }

 private:
  Tensor value(const GraphUse& use, bool declared, const char* kind, size_t i) const {
    if (use.value == nullptr) return {};
    SINTER_ASSERT(declared, "[{}] the gradient reads {} {}, which gradient_reads does not declare",
                  node_.op->name(), kind, i);
    check_unchanged(*use.value, kind, i);
    return tracer_.tensor(use);
  }

  void check_unchanged(const GraphValue& value, const char* kind, size_t i) const {
    const GraphNode* const change = tracer_.graph().change_of(value);
    SINTER_CHECK(change == nullptr,
                 "[backward] {} {} of '{}' was changed in place after the forward call, by '{}', but its "
                 "gradient reads it",
                 kind, i, node_.op->name(), change->op->name());
  }

  const Tracer& tracer_;
  const GraphNode& node_;
  std::span<const Tensor> grads_;
  const GraphTargets* targets_;
  bool recorded_;
};

/// One run of differentiate(), or of grad() if there are targets.
class Differentiation {
 public:
  Differentiation(Tracer& tracer, std::map<const GraphValue*, Tensor> sums,
                  const GraphTargets* targets = nullptr, bool create_graph = false)
      : tracer_(tracer), targets_(targets), sums_(std::move(sums)) {
    for (const GraphNode* node : tracer.graph().nodes()) order_[node] = order_.size();
    if (create_graph) {
      rules_.emplace();
    } else {
      no_grad_.emplace();
    }
  }

  void arrive(GraphValue& value, Tensor grad) {
    if (value.kind == GraphValue::Kind::kResult) {
      walk_.arrive(order_.at(value.producer), value.producer, value.producer->outputs.size(), value.output,
                   std::move(grad));
      return;
    }
    GraphValue& memory = first_version(tracer_.graph(), value);
    if (targets_ != nullptr ? !targets_->is_target(memory) : memory.kind != GraphValue::Kind::kLeaf) return;
    // The first is added to what the leaf has had before.
    const auto before = sums_.find(&memory);
    Tensor& sum =
        arrived_.try_emplace(&memory, before != sums_.end() ? before->second : Tensor()).first->second;
    sum = sum.defined() ? ops::add(sum, grad) : std::move(grad);
  }

  void run() {
    walk_.run([this](const GraphNode* node, std::span<const Tensor> grads) { visit(*node, grads); });
  }

  std::vector<LeafGradient> gradients() const {
    std::vector<LeafGradient> all;
    for (GraphValue* leaf : tracer_.graph().memories()) {
      if (const auto found = arrived_.find(leaf); found != arrived_.end())
        all.push_back({leaf, found->second});
    }
    return all;
  }

  /// The gradient of a target; undefined if none arrived.
  Tensor gradient_of(GraphValue& value) const {
    const auto found = arrived_.find(&first_version(tracer_.graph(), value));
    return found != arrived_.end() ? found->second : Tensor();
  }

 private:
  void visit(const GraphNode& node, std::span<const Tensor> grads) {
    if (targets_ != nullptr) {
      for (size_t i = 0; i < grads.size(); ++i) {
        if (grads[i].defined() && targets_->is_target(*node.outputs[i])) arrived_[node.outputs[i]] = grads[i];
      }
      if (!targets_->leads_to(node)) return;
    }
    SINTER_ASSERT(node.definition().gradient != nullptr, "[backward] '{}' has no gradient", node.op->name());
    autograd::check_flow(*node.op, grads);
    const std::string outer = tracer_.set_scope(node.scope);
    if (rules_) rules_->set_op(*node.op);
    const GraphNodeContext context(tracer_, node, grads, targets_, rules_.has_value());
    const std::vector<Tensor> input_grads = node.definition().gradient(context);
    SINTER_ASSERT(input_grads.size() == node.inputs.size(), "[{}] the gradient gave {} tensors for {} inputs",
                  node.op->name(), input_grads.size(), node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].value == nullptr || !context.needs(i) || !input_grads[i].defined()) continue;
      const TensorSpec& expected = node.inputs[i].value->spec;
      SINTER_ASSERT(input_grads[i].spec() == expected, "[{}] the gradient of input {} is {}, expected {}",
                    node.op->name(), i, input_grads[i].spec(), expected);
      arrive(*node.inputs[i].value, input_grads[i]);
    }
    tracer_.set_scope(outer);
  }

  Tracer& tracer_;
  const GraphTargets* const targets_;
  std::optional<NoGrad> no_grad_;
  std::optional<autograd::RecordedRules> rules_;
  std::map<const GraphNode*, uint64_t> order_;
  GradientWalk<const GraphNode*> walk_;
  std::map<const GraphValue*, Tensor> sums_;
  std::map<const GraphValue*, Tensor> arrived_;  // at leaves and targets
};

}  // namespace

std::vector<LeafGradient> differentiate(Tracer& tracer, const Tensor& result, const Tensor& start,
                                        std::map<const GraphValue*, Tensor> sums) {
  SINTER_CHECK(
      result.is_traced() && result.requires_grad(),
      "[backward] the result of the job has no gradient: nothing that it was computed from requires one, or "
      "it was computed while a NoGrad was alive");
  Differentiation run(tracer, std::move(sums));
  run.arrive(static_cast<GraphValue&>(*TraceAccess::value(result)), first_gradient(result, start));
  run.run();
  return run.gradients();
}

std::vector<Tensor> autograd::traced_gradients(Tracer& tracer, const std::vector<Tensor>& results,
                                               const std::vector<Tensor>& inputs,
                                               const GradOptions& options) {
  const GraphTargets targets(tracer, inputs);
  Differentiation run(tracer, {}, &targets, options.create_graph);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor start = start_of(results, i, options);
    run.arrive(value_of(tracer, results[i]), start);
  }
  run.run();
  std::vector<Tensor> gradients;
  for (const Tensor& input : inputs) gradients.push_back(run.gradient_of(value_of(tracer, input)));
  return gradients;
}

}  // namespace sinter
