#include <algorithm>
#include <vector>

#include <sinter/core/executor/lifetimes.h>

namespace sinter {
namespace {

constexpr size_t kSmallConstant = 64 << 10;  // bytes of what is computed from nothing and then kept

bool needs_buffer(const GraphValue& value) {
  return value.base == nullptr && value.kind == GraphValue::Kind::kResult;
}

const GraphValue* buffer_of(const GraphLifetimes& lifetimes, const GraphValue& root) {
  const auto found = lifetimes.over.find(&root);
  return found != lifetimes.over.end() ? found->second : &root;
}

/// The buffer over which the node of a step may write its one output, or nullptr.
const GraphValue* buffer_to_write_over(const GraphLifetimes& lifetimes, const GraphNode& node, int step) {
  const GraphValue& output = *node.outputs[0];
  for (const GraphUse& use : node.inputs) {
    if (use.value == nullptr || use.value->spec != output.spec || !needs_buffer(use.value->root())) continue;
    const GraphValue* const buffer = buffer_of(lifetimes, use.value->root());
    if (use.value->root().spec.bytes() != output.spec.bytes() || lifetimes.buffers.at(buffer).last != step)
      continue;
    // Another input in that buffer may be read at other places: a part of it that is broadcast.
    const bool is_read_apart = std::ranges::any_of(node.inputs, [&](const GraphUse& other) {
      return other.value != nullptr && other.value->spec != output.spec &&
             buffer_of(lifetimes, other.value->root()) == buffer;
    });
    if (!is_read_apart) return buffer;
  }
  return nullptr;
}

void share_buffers(GraphLifetimes& lifetimes, const std::vector<GraphNode*>& nodes,
                   const std::set<const GraphNode*>& preparation) {
  for (size_t step = 0; step < nodes.size(); ++step) {
    const GraphNode& node = *nodes[step];
    if (preparation.contains(&node) || !node.traits().elementwise || node.outputs.size() != 1 ||
        !needs_buffer(*node.outputs[0]))
      continue;
    const GraphValue* const output = node.outputs[0];
    const GraphValue* const buffer = buffer_to_write_over(lifetimes, node, static_cast<int>(step));
    if (buffer == nullptr) continue;
    lifetimes.buffers.at(buffer).last = lifetimes.buffers.at(output).last;
    lifetimes.buffers.erase(output);
    lifetimes.over[output] = buffer;
  }
}

}  // namespace

std::set<const GraphNode*> preparation_of(const Graph& graph) {
  std::set<const GraphNode*> preparation;
  std::set<const Storage*> mutated;
  const std::vector<GraphNode*> nodes = graph.nodes();
  for (const GraphNode* node : nodes) {
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->changes(i)) mutated.insert(node->input(i)->storage());
    }
  }
  // Unchanging, and worth room that is its own for as long as the program lives.
  const auto is_unchanging = [&](const GraphUse& use) {
    if (use.value == nullptr) return true;
    const GraphValue& root = use.value->root();
    return root.is_memory() ? !mutated.contains(root.tensor.storage().get())
                            : root.kind == GraphValue::Kind::kResult && preparation.contains(root.producer);
  };
  for (const GraphNode* node : nodes) {
    // A sum over ranks takes all of them, whose leaves may have changed or not.
    if (node->changes_any() || node->is_collective() || !std::ranges::all_of(node->inputs, is_unchanging))
      continue;
    const auto is_small = [](const GraphValue* value) { return value->spec.bytes() <= kSmallConstant; };
    // In training, what does not depend on the inputs is mostly made of numbers: not worth much room.
    if ((node->inputs.empty() || !mutated.empty()) && !std::ranges::all_of(node->outputs, is_small)) continue;
    preparation.insert(node);
  }
  return preparation;
}

GraphLifetimes graph_lifetimes(const Graph& graph, bool write_in_place,
                               const std::set<const GraphNode*>& preparation) {
  const std::vector<GraphNode*> nodes = graph.nodes();
  GraphLifetimes lifetimes;
  const int end = static_cast<int>(nodes.size());
  for (int step = 0; step < end; ++step) {
    for (const GraphUse& use : nodes[static_cast<size_t>(step)]->inputs) {
      if (use.value != nullptr && needs_buffer(use.value->root()))
        lifetimes.buffers.at(&use.value->root()).last = step;
    }
    for (const GraphValue* value : nodes[static_cast<size_t>(step)]->outputs) {
      if (needs_buffer(*value)) lifetimes.buffers[value] = {value->spec.bytes(), step, step};
    }
  }
  for (auto& [value, lifetime] : lifetimes.buffers) {
    if (preparation.contains(value->producer)) lifetime = {value->spec.bytes(), 0, end};
  }
  for (const GraphUse& use : graph.outputs()) {
    if (needs_buffer(use.value->root())) lifetimes.buffers.at(&use.value->root()).last = end;
  }
  if (write_in_place) share_buffers(lifetimes, nodes, preparation);
  return lifetimes;
}

std::vector<const GraphValue*> buffers_in_order(const Graph& graph, const GraphLifetimes& lifetimes) {
  std::vector<const GraphValue*> values;
  for (const GraphNode* node : graph.nodes()) {
    for (const GraphValue* value : node->outputs) {
      if (lifetimes.buffers.contains(value)) values.push_back(value);
    }
  }
  return values;
}

}  // namespace sinter
