// Folds a normalisation with known statistics into the convolutions behind it, where fold_normalization found
// none before it: for inference only.
//
//   %1 = batch_norm(x, weight, bias', running_mean, running_var) {training=false}
//   %2 = conv2d(%1, filters, bias)
//
// becomes, with scale = weight / sqrt(running_var + epsilon) and shift = bias' - running_mean * scale, one
// per channel of x, as convolutions are linear,
//
//   %2 = conv2d(x, filters * scale) + conv2d(shift at every pixel, filters, bias)
//
// whose second part is the same for all images. Without padding it is the same for all pixels too: a bias.
// With padding it differs near the edges, where taps meet zeros in place of the shift: a map, which
// fuse_convolution takes in as an addend.
#include <vector>

#include <sinter/core/graph/tracer.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/passes/norm/known_norm.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

bool is_padded(const GraphNode& convolution) {
  const auto& padding = convolution.attributes.as<ops::Conv2dAttributes>().padding;
  return padding[0] > 0 || padding[1] > 0;
}

/// Why the norm cannot be folded into the convolutions behind it; empty if it can.
std::string reason_against_moving(const Graph& graph, const GraphNode& norm) {
  const GraphValue& y = *norm.outputs[0];
  if (y.users.empty() || y.output_uses > 0 || y.spec.shape.rank() != 4) return "no convolution is behind it";
  for (const GraphNode* const user : y.users) {
    if (user->traits().role != Role::kConvolution || user->input(0) != &y || user->input(1) == &y)
      return "others than convolutions read it";
    if (!have_one_layout(norm, *user)) return "the convolution behind has another layout";
    if (const GraphValue* const lost = lost_input(graph, norm, 0, *user))
      return fmt::format("{} changes before the convolution", lost->description());
    const GraphNode* const next = only_user(*user->outputs[0]);
    if (is_padded(*user) && next != nullptr && next->traits().role == Role::kSum)
      return "the convolution behind has an addend already";
  }
  return {};
}

/// The shift at every pixel that the convolution reads for a result: for one of them all if nothing is
/// padded.
Tensor shift_map(const Tensor& shift, const GraphNode& convolution) {
  const auto& options = convolution.attributes.as<ops::Conv2dAttributes>();
  const bool channels_last = options.layout == Layout::kNHWC;
  const int height = channels_last ? 1 : 2, channel = channels_last ? 3 : 1;
  const Shape &x = convolution.input(0)->spec.shape, &filters = convolution.input(1)->spec.shape;
  std::vector<int64_t> extents{1, 1, 1, 1};
  extents[static_cast<size_t>(channel)] = x[channel];
  const Tensor pixel = ops::reshape(shift, extents);
  for (const int i : {0, 1}) {
    const auto axis = static_cast<size_t>(height + i);
    extents[axis] = is_padded(convolution)
                        ? x[height + i]
                        : options.dilation[static_cast<size_t>(i)] * (filters[height + i] - 1) + 1;
  }
  return ops::broadcast_to(pixel, Shape(extents));
}

/// filters * scale, which is one for each input channel.
Tensor scaled_filters(const Tensor& filters, const Tensor& scale, const ops::Conv2dAttributes& options) {
  const Shape& shape = filters.shape();
  const int64_t groups = options.groups;
  const bool channels_last = options.layout == Layout::kNHWC;
  const std::vector<int64_t> apart{groups, shape[0] / groups, shape[1], shape[2], shape[3]};
  const std::vector<int64_t> each = channels_last ? std::vector<int64_t>{groups, 1, 1, 1, shape[3]}
                                                  : std::vector<int64_t>{groups, 1, shape[1], 1, 1};
  const auto own = shape.extents();
  return ops::reshape(ops::reshape(filters, apart) * ops::reshape(scale, each), {own.begin(), own.end()});
}

void fold(Graph& graph, const GraphNode& norm, GraphNode& convolution) {
  Tracer tracer(graph, &convolution);
  tracer.set_scope(convolution.scope);
  const auto wide = [&](const GraphValue& value) {
    return ops::cast(tracer.tensor(const_cast<GraphValue&>(value)), accumulate_dtype(value.spec.dtype));
  };
  const auto tensor = [&](GraphValue* value) { return value == nullptr ? Tensor() : tracer.tensor(*value); };
  const auto& options = convolution.attributes.as<ops::Conv2dAttributes>();
  const DType dtype = convolution.input(1)->spec.dtype;
  const Tensor scale = scale_of(norm, wide);
  Tensor shift = ops::neg(wide(*norm.input(kMean)) * scale);
  if (const GraphValue* bias = norm.input(kBias)) shift = shift + wide(*bias);
  const Tensor folded = ops::cast(scaled_filters(wide(*convolution.input(1)), scale, options), dtype);
  const Tensor map = ops::conv2d(shift_map(ops::cast(shift, dtype), convolution),
                                 tensor(convolution.input(1)), tensor(convolution.input(2)), options);
  const Tensor x = tracer.tensor(*norm.input(kX));
  const Tensor y = is_padded(convolution) ? ops::conv2d(x, folded, {}, options) + map
                                          : ops::conv2d(x, folded, ops::reshape(map, {map.numel()}), options);
  graph.replace_uses(*convolution.outputs[0], *tracer.use_of(y).value);
  graph.erase(convolution);
}

}  // namespace

void fold_input_normalization(Graph& graph, PassContext& context) {
  if (context.training) return;
  std::vector<GraphNode*> norms;  // convolutions behind them go meanwhile
  for (GraphNode* const node : graph.nodes()) {
    if (node->traits().role == Role::kNormalization) norms.push_back(node);
  }
  for (GraphNode* const node : norms) {
    const std::string text = fmt::format("{} in {}", node->op->name(), node->scope);
    std::string reason = reason_against_folding(*node);
    if (reason.empty()) reason = reason_against_moving(graph, *node);
    if (!reason.empty()) {
      context.missed(text + ": " + reason);
      continue;
    }
    for (GraphNode* const user : std::vector(node->outputs[0]->users)) fold(graph, *node, *user);
    graph.erase(*node);
    context.done(text);
  }
}

}  // namespace sinter::passes
