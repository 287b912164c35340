// Common subexpressions: a call with the op, attributes and inputs of an earlier one.
//
//   %3 = cast(%1) {float16}
//   %4 = relu(%3)                       %4 = relu(%3)
//   %5 = cast(%1) {float16}      →
//   %6 = add(%4, %5)                    %6 = add(%4, %3)
//
// Of a leaf that was changed in between they read two versions, which are two values. Calls through which
// gradients flow are merged where the flow is the same.
#include <algorithm>
#include <map>
#include <vector>

#include <sinter/passes/passes.h>

namespace sinter::passes {
namespace {

/// Calls by hash.
class Merger {
 public:
  Merger(Graph& graph, bool keeps_differentiable)
      : graph_(graph), keeps_differentiable_(keeps_differentiable) {}

  size_t run() {
    size_t merged = 0;
    for (GraphNode* const node : graph_.nodes()) {
      if (node->changes_any()) continue;
      if (GraphNode* const twin = find_twin(*node)) {
        for (size_t i = 0; i < node->outputs.size(); ++i) {
          graph_.replace_uses(*node->outputs[i], *twin->outputs[i]);
        }
        graph_.erase(*node);
        ++merged;
      }
    }
    return merged;
  }

 private:
  static bool same_values(const GraphNode& a, const GraphNode& b) {
    return std::ranges::equal(a.inputs, b.inputs, {}, &GraphUse::value, &GraphUse::value);
  }

  static bool same_attributes(const GraphNode& a, const GraphNode& b) {
    // Their texts tell 0 from -0, which are equal numbers but not the same options.
    return a.attributes == b.attributes && to_string(a.attributes) == to_string(b.attributes);
  }

  GraphNode* find_twin(GraphNode& node) {
    if (keeps_differentiable_ && std::ranges::any_of(node.inputs, &GraphUse::differentiable)) return nullptr;
    size_t hash = std::hash<const void*>()(node.op) ^ node.attributes.hash();
    for (const GraphUse& use : node.inputs) {
      hash = hash * 0x100000001B3u + std::hash<const void*>()(use.value);
    }
    std::vector<GraphNode*>& candidates = known_[hash];
    for (GraphNode* const candidate : candidates) {
      if (candidate->op == node.op && same_values(*candidate, node) && same_attributes(*candidate, node))
        return candidate;
    }
    candidates.push_back(&node);
    return nullptr;
  }

  Graph& graph_;
  bool keeps_differentiable_;
  std::map<size_t, std::vector<GraphNode*>> known_;
};

}  // namespace

void merge_common_subexpressions(Graph& graph, PassContext& context) {
  if (const size_t merged = Merger(graph, context.training && !context.differentiated).run(); merged > 0)
    context.done(fmt::format("{} calls", merged));
}

}  // namespace sinter::passes
