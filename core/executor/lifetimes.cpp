#include <algorithm>
#include <vector>

#include <sinter/core/executor/lifetimes.h>

namespace sinter {
namespace {

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

}  // namespace sinter
