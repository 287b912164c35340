// Backend of fused normalisations: cuDNN's kernels where they can run and were measured to be faster.
//
//   %1, …, %4 = batch_norm_act(%0, …) {backend=sinter}       {backend=cudnn, reserve_bytes=…}
//   %9, … = batch_norm_act_grad(…, %4, …)              →     {backend=cudnn}
//
// Both calls of a pair or neither. Whether cuDNN can run them is asked of ops::cudnn_norm_constraint.
#include <algorithm>
#include <optional>

#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/batch_norm/cudnn_norm.h>
#include <sinter/passes/norm/node_query.h>
#include <sinter/passes/norm/norm_backend.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

using ops::NormBackend;

bool is_sinters(const GraphNode& node) {
  const auto* const backend = node.attributes.find<NormBackend>("backend");
  return backend != nullptr && *backend == NormBackend::kSinter;
}
/// The forward call says how much it leaves for its gradient.
bool is_forward(const GraphNode& node) {
  return is_sinters(node) && node.attributes.find<int64_t>("reserve_bytes") != nullptr;
}

std::optional<std::string> cudnn_constraint(const NormPair& pair) {
  return ask(*pair.forward, [&](const KernelQuery& forward) {
    return ask(*pair.gradient,
               [&](const KernelQuery& gradient) { return ops::cudnn_norm_constraint(&forward, &gradient); });
  });
}

void move_to_cudnn(Graph& graph, const NormPair& pair) {
  const int64_t reserve_bytes = ask(*pair.forward, ops::cudnn_norm().reserve_bytes);
  const auto with_cudnn = [](const GraphNode& node) {
    return node.attributes.with("backend", NormBackend::kCudnn);
  };
  graph.set_attributes(*pair.forward, with_cudnn(*pair.forward).with("reserve_bytes", reserve_bytes));
  graph.infer_again(*pair.forward);  // the mask is cuDNN's reserve space now
  graph.set_attributes(*pair.gradient, with_cudnn(*pair.gradient));
}

/// Microseconds of a pair out of a cold cache, under cuDNN or as it is.
double time_pair(const NormPair& pair, bool cudnn, TimeBudget& budget) {
  CopiedCalls calls(pair.forward->outputs[0]->spec.device);
  GraphNode& forward = calls.add(*pair.forward);
  GraphNode& gradient = calls.add(*pair.gradient);
  if (cudnn) move_to_cudnn(calls.graph(), {&forward, &gradient});
  return calls.time(budget);
}

}  // namespace

std::vector<NormPair> norm_pairs(const Graph& graph) {
  std::vector<NormPair> pairs;
  for (GraphNode* const node : graph.nodes()) {
    const bool has_statistics = node->outputs.size() > ops::NormActOutput::kInvStd;  // they may be given
    if (!is_forward(*node) || !has_statistics) continue;
    std::vector<GraphNode*> gradients = node->outputs[ops::NormActOutput::kInvStd]->users;
    std::erase_if(gradients, [](const GraphNode* user) { return !is_sinters(*user) || is_forward(*user); });
    if (gradients.size() == 1) pairs.push_back({node, gradients.front()});
  }
  return pairs;
}

Verdict race_norm_backends(const NormPair& pair) {
  const TensorSpec& x = pair.forward->outputs[0]->spec;
  const auto& options = pair.forward->attributes.as<ops::BatchNormActOptions>();
  const bool adds = pair.forward->input(ops::NormActInput::kAddend) != nullptr;
  return run_race({.device = x.device,
                   .topic = fmt::format("norms, cudnn {}", ops::cudnn_norm().version),
                   .problem = fmt::format("{} {} {} {}{}", x.dtype, x.shape, to_string(options.layout),
                                          to_string(options.activation), adds ? " add" : ""),
                   .usual = {"sinter", [&](TimeBudget& budget) { return time_pair(pair, false, budget); }},
                   .other = {"cudnn", [&](TimeBudget& budget) { return time_pair(pair, true, budget); }},
                   .usual_words = "on Sinter's kernels"});
}

void choose_norm_backend(Graph& graph, PassContext& context, const NormBackendJudge& judge) {
  LeftCalls left;
  for (const NormPair& pair : norm_pairs(graph)) {
    const std::string name = name_of(*pair.forward);
    if (const auto constraint = cudnn_constraint(pair)) {
      left.add(*constraint, name);
      continue;
    }
    const Verdict verdict = judge(pair);
    if (verdict.other) {
      move_to_cudnn(graph, pair);
      context.done(fmt::format("{} on cuDNN: {}", name, verdict.reason));
    } else {
      left.add(verdict.reason, name);
    }
  }
  left.report(context, "", " on cuDNN");
}

void choose_norm_backend(Graph& graph, PassContext& context) {
  choose_norm_backend(graph, context, race_norm_backends);
}

}  // namespace sinter::passes
