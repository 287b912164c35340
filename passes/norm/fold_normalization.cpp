// Folds a normalisation with known statistics into the convolution before it: for inference only.
//
//   %1 = conv2d(x, filters, bias)
//   %2 = batch_norm(%1, weight, bias', running_mean, running_var) {training=false}
//
// becomes, with scale = weight / sqrt(running_var + epsilon), one per channel of the output,
//
//   %2 = conv2d(x, filters * scale, (bias - running_mean) * scale + bias')
//
// What stands in the arguments depends on leaves alone, so that a program computes it again only when one of
// them has changed (core/executor/program.h). It is computed in float32 and rounded to the convolution's
// dtype at the end.
#include <algorithm>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/call.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/norm/activation.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/passes/passes.h>

namespace sinter::passes {
namespace {

enum NormInput : size_t { kX, kWeight, kBias, kMean, kVariance };

/// Why the normalisation cannot be folded; empty if it can.
std::string reason_against(const Graph& graph, const GraphNode& norm) {
  const bool* const training = norm.attributes.find<bool>("training");
  if (training == nullptr || norm.attributes.find<double>("epsilon") == nullptr)
    return "it has other attributes";
  if (*training) return "it computes the statistics of the batch";
  if (norm.input(kMean) == nullptr || norm.input(kVariance) == nullptr) return "it has no statistics";
  const auto* const activation = norm.attributes.find<ops::fused::Activation>("activation");
  const bool adds = std::any_of(norm.inputs.begin() + kVariance + 1, norm.inputs.end(),
                                [](const GraphUse& use) { return use.value != nullptr; });
  if (adds || (activation != nullptr && *activation != ops::fused::Activation::kNone))
    return "it has an activation or an addend";
  const GraphValue& x = *norm.input(kX);
  if (x.kind != GraphValue::Kind::kResult || x.producer->traits().role != Role::kConvolution) {
    return "no convolution is before it";
  }
  const Layout* const before = x.producer->attributes.find<Layout>("layout");
  const Layout* const own = norm.attributes.find<Layout>("layout");
  if (before == nullptr || own == nullptr || *before != *own) return "the convolution has another layout";
  if (x.users.size() + static_cast<size_t>(x.output_uses) != 1) return "the convolution has other users";
  for (size_t i = 1; i < norm.outputs.size(); ++i) {
    if (norm.outputs[i]->is_used()) return "its statistics are used";
  }
  for (const GraphUse& use : x.producer->inputs) {
    if (use.value != nullptr && !graph.holds(*use.value, &norm))
      return fmt::format("{} changes behind the convolution", use.value->description());
  }
  return {};
}

void fold(Graph& graph, GraphNode& norm) {
  GraphNode& convolution = *norm.input(kX)->producer;
  Tracer tracer(graph, &norm);
  tracer.set_scope(norm.scope);
  const auto wide = [&](const GraphValue& value) {
    return ops::cast(tracer.tensor(const_cast<GraphValue&>(value)), accumulate_dtype(value.spec.dtype));
  };
  const double epsilon = *norm.attributes.find<double>("epsilon");
  Tensor scale = ops::rsqrt(wide(*norm.input(kVariance)) + epsilon);
  if (const GraphValue* weight = norm.input(kWeight)) scale = scale * wide(*weight);
  Tensor shift = ops::neg(wide(*norm.input(kMean)));
  if (const GraphValue* bias = convolution.input(2)) shift = shift + wide(*bias);
  shift = shift * scale;
  if (const GraphValue* bias = norm.input(kBias)) shift = shift + wide(*bias);
  const GraphValue& filters = *convolution.input(1);
  const std::vector<int64_t> per_filter{scale.numel(), 1, 1, 1};
  const Tensor folded = ops::cast(wide(filters) * ops::reshape(scale, per_filter), filters.spec.dtype);
  const auto outputs = call(
      *convolution.op, {tracer.tensor(*convolution.input(0)), folded, ops::cast(shift, filters.spec.dtype)},
      convolution.attributes);
  graph.replace_uses(*norm.outputs[0], *tracer.use_of(outputs[0]).value);
  graph.erase(norm);
  graph.erase(convolution);
}

}  // namespace

void fold_normalization(Graph& graph, PassContext& context) {
  if (context.training) return;
  for (GraphNode* const node : graph.nodes()) {
    if (node->traits().role != Role::kNormalization) continue;
    const std::string text = fmt::format("{} in {}", node->op->name(), node->scope);
    if (const std::string reason = reason_against(graph, *node); !reason.empty()) {
      context.missed(text + ": " + reason);
    } else {
      fold(graph, *node);
      context.done(text);
    }
  }
}

}  // namespace sinter::passes
