// Backend of fused normalisations: cuDNN's kernels where they can run and were measured to be faster.
//
//   %1, …, %4 = batch_norm_act(%0, …) {backend=sinter}       {backend=cudnn, reserve_bytes=…}
//   %9, … = batch_norm_act_grad(…, %4, …)              →     {backend=cudnn}
//
// Both calls of a pair or neither. Whether cuDNN can run them is asked of ops::cudnn_norm_constraint.
#include <algorithm>
#include <map>

#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_act/cudnn_norm_constraint.h>
#include <sinter/passes/norm/norm_backend.h>
#include <sinter/passes/norm/norm_backend_race.h>
#include <sinter/passes/passes.h>

namespace sinter::passes {
namespace {

using ops::NormActGradInput;
using ops::NormActInput;
using ops::NormActOutput;
using ops::NormBackend;

bool is_sinters(const GraphNode& node) {
  const auto* const backend = node.attributes.find<NormBackend>("backend");
  return backend != nullptr && *backend == NormBackend::kSinter;
}
/// The forward call says how much it leaves for its gradient.
bool is_forward(const GraphNode& node) {
  return is_sinters(node) && node.attributes.find<int64_t>("reserve_bytes") != nullptr;
}

/// Where a value begins, as far as it is known before memory is planned: results and inputs of the job at
/// multiples of everything.
uintptr_t address_of(const GraphValue& value) {
  uintptr_t address = 0;
  const GraphValue* root = &value;
  for (; root->base != nullptr; root = root->base) address += root->base_offset;
  if (root->is_memory()) address += reinterpret_cast<uintptr_t>(root->tensor.raw_data());
  return address;
}

/// A node as kernels are asked about it.
class NodeQuery {
 public:
  explicit NodeQuery(const GraphNode& node)
      : specs_(specs_of(node)),
        outputs_(outputs_of(node)),
        views_(views_of(node)),
        infer_(node.definition(), specs_, node.attributes),
        query_(infer_, outputs_, views_) {}
  NodeQuery(const NodeQuery&) = delete;
  NodeQuery& operator=(const NodeQuery&) = delete;

  const KernelQuery& query() const { return query_; }

 private:
  static std::vector<const TensorSpec*> specs_of(const GraphNode& node) {
    std::vector<const TensorSpec*> specs;
    for (const GraphUse& use : node.inputs)
      specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
    return specs;
  }
  static std::vector<TensorSpec> outputs_of(const GraphNode& node) {
    std::vector<TensorSpec> specs;
    for (const GraphValue* value : node.outputs) specs.push_back(value->spec);
    return specs;
  }
  static std::vector<TensorView> views_of(const GraphNode& node) {
    std::vector<TensorView> views;
    for (const GraphUse& use : node.inputs) {
      views.push_back(use.value == nullptr ? TensorView{}
                                           : TensorView{reinterpret_cast<void*>(address_of(*use.value)),
                                                        use.value->spec.shape, use.value->spec.dtype, true});
    }
    return views;
  }

  std::vector<const TensorSpec*> specs_;
  std::vector<TensorSpec> outputs_;
  std::vector<TensorView> views_;
  InferContext infer_;
  KernelQuery query_;
};

std::string name_of(const GraphNode& node) {
  return node.scope.empty() ? node.op->name() : node.op->name() + " in " + node.scope;
}

}  // namespace

std::vector<NormPair> norm_pairs(const Graph& graph) {
  std::vector<NormPair> pairs;
  for (GraphNode* const node : graph.nodes()) {
    if (!is_forward(*node)) continue;
    std::vector<GraphNode*> gradients = node->outputs[NormActOutput::kInvStd]->users;
    std::erase_if(gradients, [](const GraphNode* user) { return !is_sinters(*user) || is_forward(*user); });
    if (gradients.size() == 1) pairs.push_back({node, gradients.front()});
  }
  return pairs;
}

std::optional<std::string> cudnn_constraint(const NormPair& pair, int64_t version) {
  const NodeQuery forward(*pair.forward), gradient(*pair.gradient);
  ops::CudnnNormCase both = ops::cudnn_norm_pair_case(forward.query(), gradient.query());
  both.version = version;
  return ops::cudnn_norm_constraint(both);
}

NormPair move_to_cudnn(Graph& graph, const NormPair& pair, int64_t reserve_bytes) {
  GraphNode& forward = graph.insert(
      pair.forward, *pair.forward->op, pair.forward->inputs,
      pair.forward->attributes.with("backend", NormBackend::kCudnn).with("reserve_bytes", reserve_bytes),
      pair.forward->scope);
  for (size_t i = 0; i < pair.forward->outputs.size(); ++i) {
    if (i != NormActOutput::kMask) graph.replace_uses(*pair.forward->outputs[i], *forward.outputs[i]);
  }
  // Without an activation there was no mask, but there is a reserve space.
  std::vector<GraphUse> inputs = pair.gradient->inputs;
  inputs[NormActGradInput::kMask] = {forward.outputs[NormActOutput::kMask], false};
  GraphNode& gradient =
      graph.insert(pair.gradient, *pair.gradient->op, std::move(inputs),
                   pair.gradient->attributes.with("backend", NormBackend::kCudnn), pair.gradient->scope);
  for (size_t i = 0; i < pair.gradient->outputs.size(); ++i) {
    graph.replace_uses(*pair.gradient->outputs[i], *gradient.outputs[i]);
  }
  graph.erase(*pair.gradient);
  graph.erase(*pair.forward);
  return {&forward, &gradient};
}

void choose_norm_backend(Graph& graph, PassContext& context, NormBackendJudge& judge) {
  std::map<std::string, std::vector<std::string>> kept;  // calls by reason
  for (const NormPair& pair : norm_pairs(graph)) {
    const std::string name = name_of(*pair.forward);
    if (auto constraint = cudnn_constraint(pair, judge.cudnn_version())) {
      kept[*constraint].push_back(name);
      continue;
    }
    const NormBackendJudge::Verdict verdict = judge.judge(pair);
    if (!verdict.cudnn) {
      kept[verdict.reason].push_back(name);
      continue;
    }
    move_to_cudnn(graph, pair, judge.reserve_bytes(*pair.forward));
    context.done(fmt::format("{} on cuDNN: {}", name, verdict.reason));
  }
  for (const auto& [reason, names] : kept) {
    const std::string others = names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "";
    context.missed(fmt::format("{}{} on cuDNN: {}", names.front(), others, reason));
  }
}

void choose_norm_backend(Graph& graph, PassContext& context) {
  NormBackendRace race;
  choose_norm_backend(graph, context, race);
}

}  // namespace sinter::passes
