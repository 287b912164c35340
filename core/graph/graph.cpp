#include <algorithm>

#include <sinter/core/graph/graph.h>

namespace sinter {

GraphValue& GraphValue::root() {
  GraphValue* value = this;
  while (value->base != nullptr) value = value->base;
  return *value;
}

std::string GraphValue::description() const {
  if (kind == Kind::kResult) {
    if (producer == nullptr) return "a tensor of a trace that has ended";
    std::string text = producer->outputs.size() > 1
                           ? fmt::format("output '{}' of {}", producer->definition().outputs[output].name,
                                         producer->op->name())
                           : fmt::format("the output of {}", producer->op->name());
    return producer->scope.empty() ? text : text + " in " + producer->scope;
  }
  const char* const what = kind == Kind::kInput ? "input" : kind == Kind::kLeaf ? "leaf" : "constant";
  return fmt::format("{} '{}' of the job", what, name);
}

Graph::~Graph() {
  // Tensors may outlive the graph and still be asked where they come from.
  for (const auto& [pointer, value] : results_) {
    value->graph = nullptr;
    value->producer = nullptr;
    value->base = nullptr;
  }
  for (const auto& value : values_) value->graph = nullptr;
}

GraphValue& Graph::add_value(GraphValue::Kind kind, const TensorSpec& spec, std::string name) {
  auto value = std::make_shared<GraphValue>();
  value->kind = kind;
  value->spec = spec;
  value->graph = this;
  value->name = std::move(name);
  GraphValue& added = *value;
  if (kind == GraphValue::Kind::kResult) {
    results_.emplace(&added, std::move(value));
  } else {
    values_.push_back(std::move(value));
  }
  return added;
}

GraphValue& Graph::add_input(const TensorSpec& spec, std::string name) {
  GraphValue& value = add_value(GraphValue::Kind::kInput, spec, std::move(name));
  inputs_.push_back(&value);
  return value;
}

std::vector<TensorSpec> Graph::infer(const GraphNode& node) const {
  std::vector<const TensorSpec*> specs;
  for (const GraphUse& use : node.inputs) specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
  return node.definition().infer(InferContext(node.definition(), specs, node.attributes));
}

void Graph::set_view(GraphNode& node) {
  if (node.definition().view == nullptr) return;
  std::vector<const TensorSpec*> specs;
  for (const GraphUse& use : node.inputs) specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
  const auto start = node.definition().view(InferContext(node.definition(), specs, node.attributes));
  GraphValue& output = *node.outputs[0];
  output.base = start ? node.inputs[0].value : nullptr;
  output.base_offset = start ? static_cast<size_t>(*start) * size_of(output.spec.dtype) : 0;
}

GraphNode& Graph::insert(GraphNode* before, const Op& op, std::vector<GraphUse> inputs,
                         const Attributes& attributes, std::string scope) {
  auto made = std::make_unique<GraphNode>();
  GraphNode& node = *made;
  node.op = &op;
  node.attributes = attributes;
  node.inputs = std::move(inputs);
  node.scope = std::move(scope);
  const std::vector<TensorSpec> specs = infer(node);
  node.place = nodes_.insert(before != nullptr ? before->place : nodes_.end(), std::move(made));
  numbered_ = false;
  for (const GraphUse& use : node.inputs) {
    if (use.value != nullptr) use.value->users.push_back(&node);
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    GraphValue& value = add_value(GraphValue::Kind::kResult, specs[i], {});
    value.producer = &node;
    value.output = i;
    node.outputs.push_back(&value);
  }
  set_view(node);
  note_changes(node);
  return node;
}

void Graph::drop_user(GraphValue* value, GraphNode& node) {
  if (value != nullptr) value->users.erase(std::ranges::find(value->users, &node));
}

void Graph::set_input(GraphNode& node, size_t i, GraphUse use) {
  const bool may_change = node.definition().input_def(i).mutated;
  if (may_change) forget_changes(node);
  drop_user(node.inputs[i].value, node);
  node.inputs[i] = use;
  if (use.value != nullptr) use.value->users.push_back(&node);
  if (i == 0) set_view(node);
  if (may_change) note_changes(node);
}

void Graph::set_attributes(GraphNode& node, const Attributes& attributes) {
  forget_changes(node);
  node.attributes = attributes;
  note_changes(node);
}

bool Graph::infer_again(GraphNode& node) {
  const std::vector<TensorSpec> specs = infer(node);
  SINTER_ASSERT(specs.size() == node.outputs.size(), "[graph] {} had {} outputs and now {}", node.op->name(),
                node.outputs.size(), specs.size());
  bool changed = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    changed = changed || node.outputs[i]->spec != specs[i];
    node.outputs[i]->spec = specs[i];
  }
  set_view(node);
  return changed;
}

void Graph::replace_uses(GraphValue& old, GraphValue& replacement) {
  const std::vector<GraphNode*> users = old.users;
  for (GraphNode* const node : users) {
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->inputs[i].value == &old) set_input(*node, i, {&replacement, node->inputs[i].differentiable});
    }
  }
  for (GraphUse& use : outputs_) {
    if (use.value != &old) continue;
    use.value = &replacement;
    --old.output_uses;
    ++replacement.output_uses;
  }
}

void Graph::erase(GraphNode& node) {
  for (const GraphValue* value : node.outputs) {
    SINTER_ASSERT(!value->is_used(), "[graph] {} cannot go while it is used", value->description());
  }
  forget_changes(node);
  for (const GraphUse& use : node.inputs) drop_user(use.value, node);
  for (GraphValue* value : node.outputs) {
    value->graph = nullptr;
    value->producer = nullptr;
    value->base = nullptr;
    results_.erase(value);
  }
  nodes_.erase(node.place);
}

size_t Graph::erase_dead() {
  size_t erased = 0;
  for (auto place = nodes_.end(); place != nodes_.begin();) {
    --place;
    GraphNode& node = **place;
    const bool used = std::ranges::any_of(node.outputs, [](const GraphValue* v) { return v->is_used(); });
    if (used || node.changes_any()) continue;
    const auto behind = std::next(place);
    erase(node);
    place = behind;
    ++erased;
  }
  return erased;
}

void Graph::add_output(GraphUse use) {
  ++use.value->output_uses;
  outputs_.push_back(use);
}

void Graph::set_output(size_t i, GraphUse use) {
  --outputs_.at(i).value->output_uses;
  outputs_[i] = use;
  ++use.value->output_uses;
}

std::vector<GraphNode*> Graph::nodes() const {
  std::vector<GraphNode*> all;
  all.reserve(nodes_.size());
  for (const auto& node : nodes_) all.push_back(node.get());
  return all;
}

GraphNode* Graph::next(const GraphNode& node) const {
  const auto behind = std::next(node.place);
  return behind == nodes_.end() ? nullptr : behind->get();
}

void Graph::number() const {
  if (numbered_) return;
  int64_t order = 0;
  for (const auto& node : nodes_) node->order = order++;
  numbered_ = true;
}

bool Graph::precedes(const GraphNode& a, const GraphNode& b) const {
  number();
  return a.order < b.order;
}

void Graph::verify() const {
  number();
  std::map<const GraphValue*, std::map<const GraphNode*, int>> users;
  for (const auto& node : nodes_) {
    const std::string name = node->op->name() + (node->scope.empty() ? "" : " in " + node->scope);
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const GraphValue* const value = node->inputs[i].value;
      if (value == nullptr) {
        SINTER_ASSERT(node->definition().input_def(i).optional, "[graph] input {} of {} is not there", i,
                      name);
        continue;
      }
      SINTER_ASSERT(value->graph == this || value->kind == GraphValue::Kind::kResult,
                    "[graph] input {} of {} is of another graph", i, name);
      ++users[value][node.get()];
      SINTER_ASSERT(value->kind != GraphValue::Kind::kResult ||
                        (results_.contains(value) && value->producer->order < node->order),
                    "[graph] input {} of {} is used before it is computed", i, name);
      SINTER_ASSERT(!node->changes(i) || value->root().kind == GraphValue::Kind::kLeaf,
                    "[graph] {} changes {}, which is no leaf", name, value->description());
    }
    const std::vector<TensorSpec> specs = infer(*node);
    SINTER_ASSERT(specs.size() == node->outputs.size(), "[graph] {} has {} outputs, expected {}", name,
                  node->outputs.size(), specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      SINTER_ASSERT(node->outputs[i]->spec == specs[i], "[graph] output {} of {} is {}, expected {}", i, name,
                    node->outputs[i]->spec, specs[i]);
    }
  }
  verify_versions();
  const auto check_users = [&](const GraphValue& value) {
    std::map<const GraphNode*, int> listed;
    for (const GraphNode* node : value.users) ++listed[node];
    SINTER_ASSERT(listed == users[&value], "[graph] the users of {} are not those listed",
                  value.description());
  };
  for (const GraphUse& use : outputs_) {
    SINTER_ASSERT(use.value->graph == this, "[graph] the graph gives {}, which is none of its values",
                  use.value->description());
  }
  for (const auto& value : values_) check_users(*value);
  for (const auto& [pointer, value] : results_) check_users(*value);
}

std::unique_ptr<Graph> Graph::clone(const std::function<Tensor(const Tensor&)>& memory_of) const {
  auto copy = std::make_unique<Graph>();
  std::map<const GraphValue*, GraphValue*> twins{{nullptr, nullptr}};
  for (const GraphValue* value : inputs_) twins[value] = &copy->add_input(value->spec, value->name);
  for (const GraphValue* value : memories_) {
    if (value->version > 0) {  // a version of one that came before
      const auto first = std::ranges::find_if(memories_, [&](const GraphValue* other) {
        return other->version == 0 && other->tensor.storage() == value->tensor.storage() &&
               other->tensor.offset_bytes() == value->tensor.offset_bytes() && other->spec == value->spec;
      });
      twins[value] = &copy->version_of(*twins.at(*first), value->version);
      continue;
    }
    const Tensor tensor = memory_of != nullptr ? memory_of(value->tensor) : value->tensor;
    twins[value] = &copy->memory(tensor, value->kind, value->name);
  }
  for (const auto& node : nodes_) {
    std::vector<GraphUse> inputs = node->inputs;
    for (GraphUse& use : inputs) use.value = twins.at(use.value);
    const GraphNode& twin =
        copy->insert(nullptr, *node->op, std::move(inputs), node->attributes, node->scope);
    for (size_t i = 0; i < node->outputs.size(); ++i) twins[node->outputs[i]] = twin.outputs[i];
  }
  for (const GraphUse& use : outputs_) copy->add_output({twins.at(use.value), use.differentiable});
  return copy;
}

}  // namespace sinter
