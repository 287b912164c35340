// What memory that outlives a job holds from call to call: the versions of leaves.
#include <algorithm>
#include <map>
#include <set>

#include <sinter/core/graph/graph.h>

namespace sinter {
namespace {

/// The memory that a call changes.
std::set<const Storage*> changed_by(const GraphNode& node) {
  std::set<const Storage*> changed;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.changes(i) && node.input(i)->storage() != nullptr) changed.insert(node.input(i)->storage());
  }
  return changed;
}

/// Whether a value is what the memory of a tensor holds in one version.
bool stands_for(const GraphValue& value, const Tensor& tensor, int version) {
  return value.version == version && value.spec == tensor.spec() &&
         value.tensor.offset_bytes() == tensor.offset_bytes();
}

}  // namespace

const Storage* GraphValue::storage() const {
  const GraphValue& memory = root();
  return memory.is_memory() ? memory.tensor.storage().get() : nullptr;
}

bool GraphNode::changes(size_t i) const {
  return input(i) != nullptr && definition().mutates(i, attributes);
}

bool GraphNode::changes_any() const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (changes(i)) return true;
  }
  return false;
}

GraphValue& Graph::memory(const Tensor& tensor, GraphValue::Kind kind, std::string_view name) {
  const Storage* const storage = tensor.storage().get();
  const auto [first, last] = by_storage_.equal_range(storage);
  // All views of one storage change together.
  if (kind == GraphValue::Kind::kLeaf || is_leaf(tensor)) {
    for (auto entry = first; entry != last; ++entry) entry->second->kind = GraphValue::Kind::kLeaf;
    kind = GraphValue::Kind::kLeaf;
  }
  for (auto entry = first; entry != last; ++entry) {
    GraphValue& value = *entry->second;
    if (!stands_for(value, tensor, 0)) continue;
    if (value.name.empty()) value.name = name;
    return value;
  }
  return add_memory(kind, tensor, std::string(name), 0);
}

bool Graph::is_leaf(const Tensor& tensor) const {
  const auto [first, last] = by_storage_.equal_range(tensor.storage().get());
  return std::any_of(first, last,
                     [](const auto& entry) { return entry.second->kind == GraphValue::Kind::kLeaf; });
}

GraphValue& Graph::add_memory(GraphValue::Kind kind, const Tensor& tensor, std::string name, int version) {
  GraphValue& value = add_value(kind, tensor.spec(), std::move(name));
  value.tensor = tensor;
  value.version = version;
  memories_.push_back(&value);
  by_storage_.emplace(tensor.storage().get(), &value);
  return value;
}

GraphValue& Graph::version_of(const GraphValue& leaf, int version) {
  const auto [begin, end] = by_storage_.equal_range(leaf.tensor.storage().get());
  for (auto entry = begin; entry != end; ++entry) {
    if (stands_for(*entry->second, leaf.tensor, version)) return *entry->second;
  }
  const GraphValue& first = memory(leaf.tensor, GraphValue::Kind::kLeaf);
  std::string name = first.name.empty() ? std::string() : fmt::format("{}@{}", first.name, version);
  // A handle of its own: that of the first version tells who else holds the tensor.
  return add_memory(GraphValue::Kind::kLeaf, first.tensor.detach(), std::move(name), version);
}

void Graph::note_changes(GraphNode& node) {
  for (const Storage* storage : changed_by(node)) changes_[storage].push_back(&node);
}

void Graph::forget_changes(const GraphNode& node) {
  for (const Storage* storage : changed_by(node)) {
    std::vector<GraphNode*>& calls = changes_.at(storage);
    std::erase(calls, &node);
    if (calls.empty()) changes_.erase(storage);
  }
}

int Graph::version_at(const Storage* storage, const GraphNode* before) const {
  const auto found = changes_.find(storage);
  if (found == changes_.end()) return 0;
  return static_cast<int>(std::ranges::count_if(
      found->second, [&](const GraphNode* call) { return before == nullptr || precedes(*call, *before); }));
}

bool Graph::holds(const GraphValue& value, const GraphNode* before) const {
  const Storage* const storage = value.storage();
  return storage == nullptr || version_at(storage, before) == value.root().version;
}

const GraphNode* Graph::change_of(const GraphValue& value) const {
  if (holds(value, nullptr)) return nullptr;
  std::vector<GraphNode*> calls = changes_.at(value.storage());
  std::ranges::sort(calls, [this](const GraphNode* a, const GraphNode* b) { return precedes(*a, *b); });
  return calls.at(static_cast<size_t>(value.root().version));
}

GraphValue& Graph::current(GraphValue& value, GraphNode* before) {
  if (holds(value, before)) return value;
  if (value.base == nullptr) return version_of(value, version_at(value.storage(), before));
  const GraphNode& view = *value.producer;
  std::vector<GraphUse> inputs = view.inputs;
  inputs[0].value = &current(*inputs[0].value, before);
  return *insert(before, *view.op, std::move(inputs), view.attributes, view.scope).outputs[0];
}

void Graph::verify_versions() const {
  std::map<const Storage*, int> changes;
  const auto check = [&](const GraphValue& value, const auto& reader) {
    const Storage* const storage = value.storage();
    const int now = storage != nullptr && changes.contains(storage) ? changes.at(storage) : 0;
    SINTER_ASSERT(storage == nullptr || now == value.root().version,
                  "[graph] {} reads {} where {} calls have changed it, expected {}", reader(),
                  value.description(), now, value.root().version);
  };
  for (const auto& node : nodes_) {
    for (const GraphUse& use : node->inputs) {
      if (use.value == nullptr || node->is_view()) continue;
      check(*use.value, [&] { return node->op->name() + (node->scope.empty() ? "" : " in " + node->scope); });
    }
    for (const Storage* storage : changed_by(*node)) ++changes[storage];
  }
  for (const GraphUse& use : outputs_) {
    check(*use.value, [] { return std::string("an output of the graph"); });
  }
}

}  // namespace sinter
