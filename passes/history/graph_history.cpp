#include <utility>

#include <fmt/format.h>

#include <sinter/passes/history/graph_history.h>

namespace sinter::passes {
namespace {

/// Names of inputs, leaves and constants, those without one by their order.
std::map<const GraphValue*, std::string> names_of(const Graph& graph) {
  std::map<const GraphValue*, std::string> names;
  for (const GraphValue* value : graph.inputs()) names[value] = value->name;
  int unnamed = 0;
  for (const GraphValue* value : graph.memories()) {
    names[value] = value->name.empty() ? fmt::format("tensor#{}", unnamed++) : value->name;
  }
  return names;
}

}  // namespace

int64_t GraphHistory::id_of(const GraphNode& node) const {
  const auto found = known_.find(&node);
  if (found == known_.end()) return -1;
  const Known& known = found->second;
  const bool same = node.outputs.empty() ? known.node->outputs.empty() && known.node->op == node.op &&
                                               known.node->scope == node.scope
                                         : known.output.lock().get() == node.outputs[0];
  return same ? known.node->id : -1;
}

void GraphHistory::add(std::string name, const Graph& graph) {
  const std::map<const GraphValue*, std::string> names = names_of(graph);
  std::map<const GraphNode*, Known> known;
  GraphStage stage{std::move(name), {}};
  for (const GraphNode* node : graph.nodes()) {
    HistoryNode now{id_of(*node), node->op, node->attributes, node->scope, {}, {}};
    for (const GraphUse& use : node->inputs) {
      if (use.value == nullptr) {
        now.inputs.emplace_back();
      } else if (use.value->producer != nullptr) {
        now.inputs.push_back({known.at(use.value->producer).node->id, use.value->output});
      } else {
        now.inputs.push_back({-1, 0, names.at(use.value)});
      }
    }
    for (const GraphValue* output : node->outputs) now.outputs.push_back(output->spec);
    const auto before = known_.find(node);
    const bool unchanged = now.id >= 0 && *before->second.node == now;
    if (now.id < 0) now.id = next_++;
    Known& entry = known[node];
    entry.node = unchanged ? before->second.node : std::make_shared<const HistoryNode>(std::move(now));
    if (!node->outputs.empty()) entry.output = node->outputs[0]->weak_from_this();
    stage.nodes.push_back(entry.node);
  }
  known_ = std::move(known);
  stages_.push_back(std::move(stage));
}

}  // namespace sinter::passes
