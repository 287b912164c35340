// Sum of gradients into its reader: an op that can add up an input itself is given both summands.
//
//   %3 = add(%1, %2)
//   %4 = batch_norm_act_grad(%x, %3, none, …)     →     %4 = batch_norm_act_grad(%x, %1, %2, …)
//
// Where the reader's definition says so (OpTraits::summed_input) and nobody else reads the sum. Of a chain of
// sums the last one goes. 16-bit sums are no longer rounded on the way, but where the reader gives them on.
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

/// The sum that gives input `first` of `node`; nullptr if there is none that could go.
GraphNode* sum_to_take(const Graph& graph, const GraphNode& node, PassContext& context) {
  const SummedInput& rule = node.traits().summed_input;
  if (rule.first < 0 || node.input(static_cast<size_t>(rule.second)) != nullptr) return nullptr;
  const GraphValue* const value = node.input(static_cast<size_t>(rule.first));
  if (value == nullptr || value->producer == nullptr || value->producer->traits().role != Role::kSum)
    return nullptr;
  GraphNode& sum = *value->producer;
  const auto missed = [&](const std::string& reason) {
    context.missed(name_of(node) + ": " + reason);
    return nullptr;
  };
  if (value->users.size() != 1 || value->output_uses > 0)
    return missed(fmt::format("the sum of its gradients has {} readers",
                              value->users.size() + static_cast<size_t>(value->output_uses)));
  if (rule.can != nullptr && !rule.can(node.attributes)) return missed("it takes one gradient only");
  if (sum.input(0)->spec != value->spec || sum.input(1)->spec != value->spec)
    return missed("the sum of its gradients broadcasts");
  if (!graph.holds(*sum.input(0), &node) || !graph.holds(*sum.input(1), &node))
    return missed("a summand changes before it is read");
  return &sum;
}

}  // namespace

void sum_gradients(Graph& graph, PassContext& context) {
  for (GraphNode* const node : graph.nodes()) {
    // A sum that goes stands before its reader, and reads no summed input itself: none is met again.
    GraphNode* const sum = sum_to_take(graph, *node, context);
    if (sum == nullptr) continue;
    const SummedInput& rule = node->traits().summed_input;
    const std::vector<GraphUse> summands = sum->inputs;
    graph.set_input(*node, static_cast<size_t>(rule.first), summands[0]);
    graph.set_input(*node, static_cast<size_t>(rule.second), summands[1]);
    context.done(fmt::format("{} into {}", name_of(*sum), name_of(*node)));
    graph.erase(*sum);
  }
}

}  // namespace sinter::passes
