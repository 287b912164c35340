// Sums of a normalisation from the convolution before it, where that sums while it writes its result and was
// measured to be faster.
//
//   %1 = conv2d(%0, weight)                          %1, %s = conv2d_sums(%0, weight)
//   %2, … = batch_norm_act(%1, …, none, …)     →     %2, … = batch_norm_act(%1, …, %s, …)
//
// Ops that take sums say so by the names of their inputs: `sums` are those of `x`, `addend_sums` those of
// `addend`.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/cudnn_norm.h>
#include <sinter/passes/norm/convolution_sums.h>
#include <sinter/passes/passes.h>

namespace sinter::passes {
namespace {

/// Not in inference, and not on cuDNN.
bool sums_up(const GraphNode& node) {
  const auto* const backend = node.attributes.find<ops::NormBackend>("backend");
  const auto* const training = node.attributes.find<bool>("training");
  return (backend == nullptr || *backend == ops::NormBackend::kSinter) && (training == nullptr || *training);
}

std::optional<size_t> input_named(const GraphNode& node, std::string_view name) {
  const std::vector<InputDef>& inputs = node.definition().inputs;
  const auto found = std::ranges::find(inputs, name, &InputDef::name);
  if (found == inputs.end()) return std::nullopt;
  return static_cast<size_t>(found - inputs.begin());
}

const Op* with_sums(const GraphNode* node) {
  if (node == nullptr || node->traits().with_channel_sums == nullptr) return nullptr;
  return &OpRegistry::instance().get(node->traits().with_channel_sums);
}

std::string specs_of(const GraphNode& node) {
  std::string text;
  for (const GraphUse& use : node.inputs) {
    text +=
        use.value == nullptr ? " none" : fmt::format(" {}{}", use.value->spec.dtype, use.value->spec.shape);
  }
  return text;
}

double time(const SummableNorm& norm, bool sums, TimeBudget& budget) {
  CopiedCalls calls(norm.norm->outputs[0]->spec.device);
  GraphNode& convolution = calls.add(*norm.convolution);
  const SummableNorm copied{&convolution, &calls.add(*norm.norm), norm.image, norm.sums};
  if (!sums) return calls.time(budget);
  take_sums(calls.graph(), copied);
  // A kernel that computes first and sums afterwards only costs time here.
  return calls.time(budget, [](const Program& program) { return program.calls().front().kernel == "cudnn"; });
}

/// Times the convolution and the norm, with a pass over the result and without.
Verdict race_sums(const SummableNorm& norm) {
  const Device device = norm.norm->outputs[0]->spec.device;
  if (device.is_cpu()) return {false, "nothing on a cpu sums while it computes"};
  return run_race({.device = device,
                   .topic = fmt::format("convolution sums, cudnn {}", ops::cudnn_norm().version),
                   .problem = fmt::format("{}{} then {}{} takes {}", to_string(norm.convolution->attributes),
                                          specs_of(*norm.convolution), to_string(norm.norm->attributes),
                                          specs_of(*norm.norm), norm.sums),
                   .usual = {"apart", [&](TimeBudget& budget) { return time(norm, false, budget); }},
                   .other = {"sums", [&](TimeBudget& budget) { return time(norm, true, budget); }},
                   .usual_words = "with a pass of its own"});
}

}  // namespace

std::vector<SummableNorm> summable_norms(const Graph& graph) {
  std::vector<SummableNorm> norms;
  for (GraphNode* const node : graph.nodes()) {
    const auto add = [&](std::string_view image_name, std::string_view sums_name) {
      const auto image = input_named(*node, image_name), sums = input_named(*node, sums_name);
      if (!image || !sums || node->input(*sums) != nullptr) return;
      const GraphValue* const x = node->input(*image);
      if (x == nullptr || x->output != 0 || with_sums(x->producer) == nullptr) return;
      norms.push_back({x->producer, node, *image, *sums});
    };
    if (!sums_up(*node)) continue;
    add("x", "sums");
    const auto* const normalized = node->attributes.find<bool>("normalize_addend");
    if (normalized != nullptr && *normalized) add("addend", "addend_sums");
  }
  return norms;
}

GraphNode& take_sums(Graph& graph, const SummableNorm& norm) {
  const GraphNode& plain = *norm.convolution;
  GraphNode& summing =
      graph.insert(norm.convolution, *with_sums(&plain), plain.inputs, plain.attributes, plain.scope);
  graph.replace_uses(*plain.outputs[0], *summing.outputs[0]);
  graph.erase(*norm.convolution);
  graph.set_input(*norm.norm, norm.sums, {summing.outputs[1], false});
  return summing;
}

void sum_in_convolutions(Graph& graph, PassContext& context, const ConvolutionSumsJudge& judge) {
  LeftCalls left;
  std::map<const GraphNode*, GraphNode*> replaced;  // of convolutions with several norms behind them
  for (const SummableNorm& norm : summable_norms(graph)) {
    if (const auto found = replaced.find(norm.convolution); found != replaced.end()) {
      graph.set_input(*norm.norm, norm.sums, {found->second->outputs[1], false});
      continue;
    }
    const std::string name = norm.norm->scope.empty() ? norm.norm->op->name() : norm.norm->scope;
    const Verdict verdict = judge(norm);
    if (!verdict.other) {
      left.add(verdict.reason, name);
      continue;
    }
    replaced[norm.convolution] = &take_sums(graph, norm);
    context.done(fmt::format("sums of {}: {}", name, verdict.reason));
  }
  left.report(context, "sums of ", "");
}

void sum_in_convolutions(Graph& graph, PassContext& context) {
  sum_in_convolutions(graph, context, race_sums);
}

}  // namespace sinter::passes
