#include <algorithm>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/trace_access.h>

namespace sinter {

Tracer::Tracer(Graph& graph) : Tracer(graph, nullptr) {
  reads_what_is_there_ = true;
}

Tracer::Tracer(Graph& graph, GraphNode* before)
    : graph_(graph),
      before_(before),
      reads_what_is_there_(false),
      previous_(set_call_tracer(this)),
      previous_recorder_(set_host_effect_recorder(this)) {}

Tracer::~Tracer() {
  set_call_tracer(previous_);
  set_host_effect_recorder(previous_recorder_);
}

Tensor Tracer::tensor(const GraphUse& use) const {
  if (use.value == nullptr) return {};
  return TraceAccess::make(use.value->spec, use.value->shared_from_this(), use.differentiable);
}

GraphUse Tracer::use_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.is_traced()) {
    auto& value = static_cast<GraphValue&>(*TraceAccess::value(tensor));
    SINTER_CHECK(value.graph == &graph_, "[trace] {}, {}, came into another trace", value.description(),
                 tensor.spec());
    return {reads_what_is_there_ ? &graph_.current(value, before_) : &value, tensor.requires_grad()};
  }
  SINTER_CHECK(
      tensor.is_leaf(),
      "[trace] a tensor of {} that eager code computed with a gradient came into a job, which cannot "
      "differentiate through it; detach() it",
      tensor.spec());
  const auto kind = tensor.requires_grad() || graph_.is_leaf(tensor) ? GraphValue::Kind::kLeaf
                                                                     : GraphValue::Kind::kConstant;
  return {&graph_.current(graph_.memory(tensor, kind), before_), tensor.requires_grad()};
}

bool Tracer::belongs(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes) const {
  // While one rank traces another may run: what they do together is part of the step, whatever it is of.
  if (attributes.find<uint64_t>("communicator") != nullptr) return true;
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (!input.defined()) continue;
    any = true;
    if (input.is_traced() || input.requires_grad() || graph_.is_leaf(input) ||
        op.definition.mutates(i, attributes)) {
      return true;
    }
  }
  return !any;
}

void Tracer::check_mutated(const Op& op, size_t i, const Tensor& input) const {
  const char* const name = op.definition.input_def(i).name.c_str();
  SINTER_CHECK(
      !input.is_traced() || static_cast<const GraphValue&>(*TraceAccess::value(input)).root().is_memory(),
      "[trace] {} cannot change '{}' in place: it is {}, which only exists while the job runs; use an op "
      "that gives a new tensor",
      op.name(), name, TraceAccess::value(input)->description());
  SINTER_CHECK(
      input.is_traced() || !folded_.contains(input.storage()),
      "[trace] {} cannot change '{}' in place: the job took its earlier contents for a constant; register "
      "it as a buffer of the model",
      op.name(), name);
}

void Tracer::check_changed_are_held() const {
  for (const GraphNode* node : graph_.nodes()) {
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (!node->changes(i)) continue;
      const std::shared_ptr<Storage>& storage = node->input(i)->root().tensor.storage();
      // The graph holds one handle of each tensor over the storage.
      long others = storage.use_count();
      for (const GraphValue* memory : graph_.memories()) {
        if (memory->tensor.storage() == storage) others += TraceAccess::handles(memory->tensor) - 2;
      }
      SINTER_CHECK(
          others > 0,
          "[trace] {} changes '{}' in place, a tensor of {} that the traced code made itself: a job "
          "makes it once, and every run would find what the last one left in it; use an op that gives "
          "a new tensor, or make it a buffer of the model",
          node->op->name(), node->definition().input_def(i).name, node->input(i)->spec);
    }
  }
}

void Tracer::check_nothing_is_kept() const {
  const auto check = [](const GraphValue* value) {
    if (value == nullptr || value->weak_from_this().use_count() <= 1) return;  // the graph's own
    throw_error<InvalidArgument>(
        "[trace] {}, {}, is still held by the code that was traced, such as a member that it assigned: the "
        "job computes it anew in every run and would never assign it again. Return it as another result, or "
        "make it a buffer of the model and change it in place",
        value->description(), value->spec);
  };
  for (const GraphValue* input : graph_.inputs()) check(input);
  for (const GraphNode* node : graph_.nodes()) {
    for (const GraphValue* output : node->outputs) check(output);
  }
}

void Tracer::host_reads(const Tensor& tensor) {
  SINTER_CHECK(
      !tensor.requires_grad() && !graph_.is_leaf(tensor),
      "[trace] the value of a parameter, a buffer or another tensor that the job changes was asked for "
      "(by item(), data() or the like) while the job was traced: {}, which may hold something else in "
      "each run; compute with ops, or do it outside of the job",
      tensor.spec());
  note_constant(tensor, true);
}

void Tracer::note_constant(const Tensor& tensor, bool reads_contents) {
  folded_.insert(tensor.storage());
  const auto is_known = [&](const auto& constant) { return constant.first == tensor.storage(); };
  if (reads_contents && std::ranges::none_of(constants_, is_known))
    constants_.emplace_back(tensor.storage(), tensor.storage()->version());
}

void Tracer::note_read(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes) {
  const auto is_view = [&] {
    if (op.definition.view == nullptr) return false;
    std::vector<const TensorSpec*> specs;
    for (const Tensor& input : inputs) specs.push_back(input.defined() ? &input.spec() : nullptr);
    return op.definition.view(InferContext(op.definition, specs, attributes)).has_value();
  };
  // A view shows the contents of its memory as they are when the job runs.
  const bool reads_contents = !is_view();
  for (const Tensor& input : inputs) {
    if (input.defined()) note_constant(input, reads_contents);
  }
}

std::optional<std::vector<Tensor>> Tracer::take(const Op& op, std::span<const Tensor> inputs,
                                                const Attributes& attributes, std::span<const TensorSpec>) {
  if (!belongs(op, inputs, attributes)) {
    note_read(op, inputs, attributes);
    return std::nullopt;
  }
  const OpDef& def = op.definition;
  std::vector<GraphUse> uses;
  bool differentiable = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && def.mutates(i, attributes)) {
      check_mutated(op, i, inputs[i]);
      if (!inputs[i].is_traced()) graph_.memory(inputs[i], GraphValue::Kind::kLeaf);
    }
    uses.push_back(use_of(inputs[i]));
    differentiable = differentiable || uses.back().differentiable;
  }
  const GraphNode& node = graph_.insert(before_, op, std::move(uses), attributes, scope_);
  const bool records = differentiable && grad_enabled() && def.gradient != nullptr;
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    outputs.push_back(tensor({node.outputs[i], records && def.outputs[i].differentiable &&
                                                   is_float(node.outputs[i]->spec.dtype)}));
  }
  return outputs;
}

}  // namespace sinter
