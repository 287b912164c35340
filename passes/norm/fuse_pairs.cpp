// Fuse pairs: two calls for which there is one op become a call of that.
//
//   %1, … = batch_norm_act(%0, bn.weight, …) {activation=relu}
//   %5, %6 = max_pool2d(%1)                     →     %5, … = batch_norm_relu_max_pool(%0, bn.weight, …)
//
// Nobody else may read what lies in between, nor the other outputs of either. The op that takes both in says
// so where it registers itself (PairRule). The call stands where the first one stood, so that what that
// changes is changed at the same time as before.
#include <algorithm>
#include <optional>
#include <set>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/norm_chain.h>
#include <sinter/passes/memory_order.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

/// A rule, and the two calls that it is about.
struct Pair {
  const PairRule* rule = nullptr;
  GraphNode *first = nullptr, *second = nullptr;

  std::string text() const {
    const std::string names = first->op->name() + " + " + second->op->name();
    return first->scope.empty() ? names : names + " in " + first->scope;
  }
};

/// A call that reads the first output of `node`, and for which both there is a rule.
std::optional<Pair> pair_of(GraphNode& node) {
  if (node.outputs.empty() || !has_pair_rule(node.op->name())) return std::nullopt;
  for (GraphNode* const user : node.outputs[0]->users) {
    const PairRule* const rule = find_pair_rule(node.op->name(), user->op->name());
    const bool is_one_input = user->inputs.size() == 1 && user->input(0) == node.outputs[0];
    if (rule != nullptr && is_one_input) return Pair{rule, &node, user};
  }
  return std::nullopt;
}

/// Which output of `node` but the first is read, in words; empty: none.
std::string other_output_read(const GraphNode& node) {
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i]->is_used())
      return fmt::format("output '{}' of {} is read", node.definition().outputs[i].name, node.op->name());
  }
  return {};
}

/// Why others need what the pair would no longer compute; empty if nobody does.
std::string needed_elsewhere(const Pair& pair) {
  const GraphValue& between = *pair.first->outputs[0];
  if (between.output_uses > 0) return "what lies in between is a result of the job";
  if (between.users.size() > 1) return fmt::format("what lies in between has {} users", between.users.size());
  std::string reason = other_output_read(*pair.first);
  return reason.empty() ? other_output_read(*pair.second) : reason;
}

FoundCall found(const Tracer& tracer, const GraphNode& node, bool differentiable, size_t first_input) {
  FoundCall call{&node.definition(), node.attributes, std::vector<Tensor>(node.inputs.size())};
  for (size_t i = first_input; i < node.inputs.size(); ++i) {
    const GraphUse& use = node.inputs[i];
    call.inputs[i] = tracer.tensor({use.value, use.differentiable && differentiable});
  }
  return call;
}

/// Whether backward will come through `value`.
bool gets_gradient(const Graph& graph, const PassContext& context, const GraphValue& value) {
  const auto reads = [&](const GraphUse& use) { return use.value == &value && use.differentiable; };
  return context.training && !context.differentiated &&
         (std::ranges::any_of(graph.outputs(), reads) ||
          std::ranges::any_of(
              value.users, [&](const GraphNode* user) { return std::ranges::any_of(user->inputs, reads); }));
}

/// Makes one call of a pair, or says why not.
std::string fuse(Graph& graph, const PassContext& context, const Pair& pair) {
  if (std::string reason = needed_elsewhere(pair); !reason.empty()) return reason;
  GraphValue& result = *pair.second->outputs[0];
  const bool is_differentiated = gets_gradient(graph, context, result);
  if (const GraphValue* const changed = is_differentiated ? changed_later(graph, *pair.first) : nullptr)
    return changed->description() + " changes behind it, where a gradient may read it";
  Tracer tracer(graph, graph.next(*pair.first));
  tracer.set_scope(pair.first->scope);
  std::optional<NoGrad> no_grad;  // what only gradients need is not kept
  if (!is_differentiated) no_grad.emplace();
  const bool flows = pair.second->inputs[0].differentiable;
  const FusedNorm fused =
      pair.rule->fuse(found(tracer, *pair.first, flows, 0), found(tracer, *pair.second, true, 1));
  if (!fused.y.defined()) return fused.reason;
  SINTER_ASSERT(fused.y.spec() == result.spec, "[fuse] {} gave {}, expected {}", pair.text(), fused.y.spec(),
                result.spec);
  graph.replace_uses(result, *tracer.use_of(fused.y).value);
  return {};
}

}  // namespace

void fuse_pairs(Graph& graph, PassContext& context) {
  std::set<const GraphNode*> gone;  // taken in before they were met
  for (GraphNode* const node : graph.nodes()) {
    if (gone.contains(node)) continue;
    const std::optional<Pair> pair = pair_of(*node);
    if (!pair) continue;
    const std::string text = pair->text();
    if (std::string reason = fuse(graph, context, *pair); !reason.empty()) {
      context.missed(text + ": " + reason);
      continue;
    }
    context.done(text);
    gone.insert(pair->second);
    graph.erase(*pair->second);
    graph.erase(*pair->first);
  }
}

}  // namespace sinter::passes
