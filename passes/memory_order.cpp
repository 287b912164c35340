#include <algorithm>

#include <sinter/passes/memory_order.h>

namespace sinter::passes {
namespace {

/// The memory behind input i that outlives the job; null for what the job computes or is given.
const Storage* memory_of(const GraphNode& node, size_t i) {
  const GraphValue* const value = node.input(i);
  return value != nullptr && value->root().is_memory() ? value->root().tensor.storage().get() : nullptr;
}

bool changes_what_touches(const GraphNode& changing, const GraphNode& other) {
  if (!changing.mutates()) return false;
  for (size_t i = 0; i < changing.inputs.size(); ++i) {
    const Storage* const changed = changing.mutates(i) ? memory_of(changing, i) : nullptr;
    for (size_t k = 0; changed != nullptr && k < other.inputs.size(); ++k) {
      if (memory_of(other, k) == changed) return true;
    }
  }
  return false;
}

}  // namespace

bool share_changed_memory(const GraphNode& a, const GraphNode& b) {
  return changes_what_touches(a, b) || changes_what_touches(b, a);
}

const GraphNode* obstacle(const Graph& graph, const GraphNode& node, const GraphNode& last,
                          std::span<const GraphNode* const> apart) {
  if (&node == &last) return nullptr;
  const bool forward = graph.precedes(node, last);
  const GraphNode* const end = forward ? graph.next(last) : &node;
  for (const GraphNode* each = graph.next(forward ? node : last); each != end; each = graph.next(*each)) {
    if (std::ranges::find(apart, each) == apart.end() && share_changed_memory(node, *each)) return each;
  }
  return nullptr;
}

}  // namespace sinter::passes
