#include <algorithm>

#include <sinter/passes/memory_order.h>

namespace sinter::passes {
namespace {

bool changes_what_touches(const GraphNode& changing, const GraphNode& other) {
  if (!changing.changes_any()) return false;
  for (size_t i = 0; i < changing.inputs.size(); ++i) {
    const Storage* const changed = changing.changes(i) ? changing.input(i)->storage() : nullptr;
    for (size_t k = 0; changed != nullptr && k < other.inputs.size(); ++k) {
      if (other.input(k) != nullptr && other.input(k)->storage() == changed) return true;
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

const GraphValue* changed_later(const Graph& graph, const GraphNode& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const GraphValue* const value = node.input(i);
    if (value != nullptr && !node.changes(i) && !graph.holds(*value, nullptr)) return value;
  }
  return nullptr;
}

}  // namespace sinter::passes
