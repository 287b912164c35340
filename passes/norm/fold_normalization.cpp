// Folds a normalisation with known statistics into the convolution before it: for inference only.
//
//   %1 = conv2d(x, filters, bias)
//   %2 = batch_norm(%1, weight, bias', running_mean, running_var) {training=false}
//
// becomes, with scale = weight / sqrt(running_var + epsilon), one per channel of the output,
//
//   %2 = conv2d(x, filters * scale, (bias - running_mean) * scale + bias')
//
// What stands in the arguments is computed in float32 and rounded to the convolution's dtype at the end.
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/call.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/passes/norm/known_norm.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

/// Why it cannot be folded into the convolution before it; empty if it can.
std::string reason_against(const Graph& graph, const GraphNode& norm) {
  const GraphValue& x = *norm.input(kX);
  if (x.kind != GraphValue::Kind::kResult || x.producer->traits().role != Role::kConvolution) {
    return "no convolution is before it";
  }
  if (!have_one_layout(norm, *x.producer)) return "the convolution has another layout";
  if (only_user(x) == nullptr) return "the convolution has other users";
  if (const GraphValue* const lost = lost_input(graph, *x.producer, 0, norm))
    return fmt::format("{} changes behind the convolution", lost->description());
  return {};
}

void fold(Graph& graph, GraphNode& norm) {
  GraphNode& convolution = *norm.input(kX)->producer;
  Tracer tracer(graph, &norm);
  tracer.set_scope(norm.scope);
  const auto wide = [&](const GraphValue& value) {
    return ops::cast(tracer.tensor(const_cast<GraphValue&>(value)), accumulate_dtype(value.spec.dtype));
  };
  const Tensor scale = scale_of(norm, wide);
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
    std::string reason = reason_against_folding(*node);
    if (reason.empty()) reason = reason_against(graph, *node);
    if (!reason.empty()) {
      context.missed(text + ": " + reason);
    } else {
      fold(graph, *node);
      context.done(text);
    }
  }
}

}  // namespace sinter::passes
