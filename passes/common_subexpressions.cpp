// Common subexpressions: a call with the op, attributes and inputs of an earlier one.
//
//   %3 = cast(%1) {float16}
//   %4 = relu(%3)                       %4 = relu(%3)
//   %5 = cast(%1) {float16}      →
//   %6 = add(%4, %5)                    %6 = add(%4, %3)
//
// Only if no leaf that either reads was changed in between: leaves have versions here, one more behind each
// node that changes their memory. Calls through which gradients flow are merged where the flow is the same.
#include <algorithm>
#include <map>
#include <vector>

#include <sinter/passes/passes.h>

namespace sinter::passes {
namespace {

/// Calls by hash, and the versions of the memory that they read.
class Merger {
 public:
  Merger(Graph& graph, bool keeps_differentiable)
      : graph_(graph), keeps_differentiable_(keeps_differentiable) {}

  size_t run() {
    size_t merged = 0;
    for (GraphNode* const node : graph_.nodes()) {
      if (node->mutates()) {
        change(*node);
      } else if (GraphNode* const twin = find_twin(*node)) {
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
  struct Known {
    GraphNode* node;
    std::vector<int> versions;
  };

  void change(const GraphNode& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.mutates(i)) {
        ++versions_[node.input(i)->root().tensor.storage().get()];
      }
    }
  }

  int version_of(const GraphUse& use) const {
    if (use.value == nullptr || !use.value->root().is_memory()) return 0;
    const auto found = versions_.find(use.value->root().tensor.storage().get());
    return found != versions_.end() ? found->second : 0;
  }

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
    std::vector<int> versions;
    for (const GraphUse& use : node.inputs) {
      hash = hash * 0x100000001B3u + std::hash<const void*>()(use.value);
      versions.push_back(version_of(use));
    }
    std::vector<Known>& candidates = known_[hash];
    for (const Known& candidate : candidates) {
      if (candidate.node->op == node.op && same_values(*candidate.node, node) &&
          candidate.versions == versions && same_attributes(*candidate.node, node)) {
        return candidate.node;
      }
    }
    candidates.push_back({&node, std::move(versions)});
    return nullptr;
  }

  Graph& graph_;
  bool keeps_differentiable_;
  std::map<const Storage*, int> versions_;
  std::map<size_t, std::vector<Known>> known_;
};

}  // namespace

void merge_common_subexpressions(Graph& graph, PassContext& context) {
  if (const size_t merged = Merger(graph, context.training && !context.differentiated).run(); merged > 0)
    context.done(fmt::format("{} calls", merged));
}

}  // namespace sinter::passes
