#include <algorithm>
#include <map>
#include <utility>

#include <sinter/autograd/differentiate.h>
#include <sinter/autograd/gradient_walk.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/trace_access.h>
#include <sinter/ops/binary/binary.h>

namespace sinter {
namespace {

bool reads(uint64_t mask, size_t index) {
  return mask == kReadsAll || (index < 64 && (mask >> index & 1) != 0);
}

/// What the gradient rule of one node may look at.
class GraphNodeContext final : public GradientContext {
 public:
  GraphNodeContext(const Tracer& tracer, const GraphNode& node, std::span<const Tensor> grads)
      : tracer_(tracer), node_(node), grads_(grads) {}

  const Attributes& attributes() const override { return node_.attributes; }
  size_t input_count() const override { return node_.inputs.size(); }
  Tensor input(size_t i) const override {
    const OpDef& def = node_.definition();
    const size_t declared = def.variadic ? i % def.inputs.size() : i;
    return value(node_.inputs.at(i).value, reads(def.gradient_reads.inputs, declared), "input", i);
  }
  Tensor output(size_t i) const override {
    return value(node_.outputs.at(i), reads(node_.definition().gradient_reads.outputs, i), "output", i);
  }
  const TensorSpec& input_spec(size_t i) const override { return node_.inputs[i].value->spec; }
  const TensorSpec& output_spec(size_t i) const override { return node_.outputs[i]->spec; }
  Tensor grad(size_t i) const override { return grads_[i]; }
  bool needs(size_t i) const override { return node_.inputs[i].differentiable; }

 private:
  Tensor value(GraphValue* value, bool declared, const char* kind, size_t i) const {
    if (value == nullptr) return {};
    SINTER_ASSERT(declared, "[{}] the gradient reads {} {}, which gradient_reads does not declare",
                  node_.op->name(), kind, i);
    check_unchanged(*value, kind, i);
    return tracer_.tensor(*value);
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
};

/// One run of differentiate().
class Differentiation {
 public:
  Differentiation(Tracer& tracer, std::map<const GraphValue*, Tensor> sums)
      : tracer_(tracer), sums_(std::move(sums)) {
    for (const GraphNode* node : tracer.graph().nodes()) order_[node] = order_.size();
  }

  void arrive(GraphValue& value, Tensor grad) {
    if (value.kind == GraphValue::Kind::kResult) {
      walk_.arrive(order_.at(value.producer), value.producer, value.producer->outputs.size(), value.output,
                   std::move(grad));
    } else if (value.kind == GraphValue::Kind::kLeaf) {
      GraphValue& leaf = tracer_.graph().memory(value.tensor, GraphValue::Kind::kLeaf);  // of any version
      // The first is added to what the leaf has had before.
      const auto before = sums_.find(&leaf);
      Tensor& sum =
          leaves_.try_emplace(&leaf, before != sums_.end() ? before->second : Tensor()).first->second;
      sum = sum.defined() ? ops::add(sum, grad) : std::move(grad);
    }
  }

  void run() {
    walk_.run([this](const GraphNode* node, std::span<const Tensor> grads) { visit(*node, grads); });
  }

  std::vector<LeafGradient> gradients() const {
    std::vector<LeafGradient> all;
    for (GraphValue* leaf : tracer_.graph().memories()) {
      if (const auto found = leaves_.find(leaf); found != leaves_.end()) all.push_back({leaf, found->second});
    }
    return all;
  }

 private:
  void visit(const GraphNode& node, std::span<const Tensor> grads) {
    SINTER_ASSERT(node.definition().gradient != nullptr, "[backward] '{}' has no gradient", node.op->name());
    const std::string outer = tracer_.set_scope(node.scope);
    const std::vector<Tensor> input_grads =
        node.definition().gradient(GraphNodeContext(tracer_, node, grads));
    SINTER_ASSERT(input_grads.size() == node.inputs.size(), "[{}] the gradient gave {} tensors for {} inputs",
                  node.op->name(), input_grads.size(), node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].differentiable || !input_grads[i].defined()) continue;
      const TensorSpec& expected = node.inputs[i].value->spec;
      SINTER_ASSERT(input_grads[i].spec() == expected, "[{}] the gradient of input {} is {}, expected {}",
                    node.op->name(), i, input_grads[i].spec(), expected);
      arrive(*node.inputs[i].value, input_grads[i]);
    }
    tracer_.set_scope(outer);
  }

  Tracer& tracer_;
  std::map<const GraphNode*, uint64_t> order_;
  GradientWalk<const GraphNode*> walk_;
  std::map<const GraphValue*, Tensor> sums_;
  std::map<const GraphValue*, Tensor> leaves_;
};

}  // namespace

std::vector<LeafGradient> differentiate(Tracer& tracer, const Tensor& result, const Tensor& start,
                                        std::map<const GraphValue*, Tensor> sums) {
  SINTER_CHECK(
      result.is_traced() && result.requires_grad(),
      "[backward] the result of the job has no gradient: nothing that it was computed from requires one, or "
      "it was computed while a NoGrad was alive");
  const NoGrad no_grad;
  Differentiation run(tracer, std::move(sums));
  run.arrive(static_cast<GraphValue&>(*TraceAccess::value(result)), first_gradient(result, start));
  run.run();
  return run.gradients();
}

}  // namespace sinter
