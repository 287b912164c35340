// batch_norm_relu_max_pool and its gradient as ops: checks, shapes, what the gradient reads.
#include <algorithm>

#include <sinter/core/op/node.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_call.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_fusion.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>

namespace sinter::ops {
namespace {

/// The shape of y. Throws InvalidArgument for windows that the op does not take.
Shape pooled_shape(const InferContext& context, const PoolOptions& pool) {
  const PoolGeometry geometry = pool_geometry(context.shape(0), pool, context.tag());
  SINTER_CHECK(!geometry.is_dilated(), "[{}] expected no dilation but got {} x {}", context.tag(),
               pool.dilation[0], pool.dilation[1]);
  SINTER_CHECK(pool.kernel[0] * pool.kernel[1] <= kMostPlaces,
               "[{}] expected a window of at most {} elements but got {} x {}", context.tag(), kMostPlaces,
               pool.kernel[0], pool.kernel[1]);
  SINTER_CHECK(geometry.y.extent < kMostPooledExtent && geometry.x.extent < kMostPooledExtent,
               "[{}] expected height and width below {} but got shape {}", context.tag(), kMostPooledExtent,
               context.shape(0));
  return geometry.output_shape(pool.layout);
}

std::vector<TensorSpec> infer_forward(const InferContext& context) {
  using In = NormPoolInput;
  const auto& options = context.attributes<BatchNormReluMaxPoolOptions>();
  context.expect_float(In::kX);
  context.expect_rank(In::kX, 4);
  const int64_t channels = expect_norm_input(context, options.layout);
  expect_norm_parameters(context, In::kWeight, channels, /*training=*/true);
  const TensorSpec& x = context.input(In::kX);
  if (context.has(In::kSums)) {
    context.expect_dtype(In::kSums, accumulate_dtype(x.dtype));
    context.expect_shape(In::kSums, Shape{2, channels});
  }
  expect_norm_options(context, options.epsilon, options.momentum, /*training=*/true, options.layout);
  const TensorSpec y{pooled_shape(context, options.pool()), x.dtype, x.device};
  const TensorSpec statistic{Shape{channels}, accumulate_dtype(x.dtype), x.device};
  if (!options.save_indices) return {y, statistic, statistic};
  return {y, statistic, statistic, {y.shape, DType::kUInt8, y.device}};
}

std::vector<Tensor> forward_gradient(const GradientContext& context) {
  using In = NormPoolInput;
  using Out = NormPoolOutput;
  const auto& options = context.attributes<BatchNormReluMaxPoolOptions>();
  SINTER_CHECK(options.save_indices,
               "[batch_norm_relu_max_pool] expected save_indices for a gradient but it is off");
  const BatchNormReluMaxPoolGradOptions grad_options{
      .parameter_grads = context.needs(In::kWeight) || context.needs(In::kBias), .pool = options.pool()};
  const NormState norm{.weight = context.input(In::kWeight),
                       .bias = {},
                       .mean = context.output(Out::kMean),
                       .inv_std = context.output(Out::kInvStd)};
  BatchNormReluMaxPoolGrads grads = batch_norm_relu_max_pool_grad(
      context.input(In::kX), context.grad(), context.output(Out::kIndices), norm, grad_options);
  if (!context.needs(In::kWeight)) grads.dweight = {};
  if (!context.needs(In::kBias)) grads.dbias = {};
  return {grads.dx, grads.dweight, grads.dbias, {}, {}, {}};
}

std::vector<TensorSpec> infer_grad(const InferContext& context) {
  using In = NormPoolGradInput;
  const auto& options = context.attributes<BatchNormReluMaxPoolGradOptions>();
  context.expect_float(In::kX);
  context.expect_rank(In::kX, 4);
  const int64_t channels = expect_norm_input(context, options.pool.layout);
  const Shape pooled = pooled_shape(context, options.pool);
  context.expect_same_dtype(In::kDy, In::kX);
  context.expect_shape(In::kDy, pooled);
  context.expect_dtype(In::kIndices, DType::kUInt8);
  context.expect_shape(In::kIndices, pooled);
  for (size_t i = In::kWeight; i <= In::kInvStd; ++i) expect_channel_vector(context, i, channels);
  const TensorSpec& x = context.input(In::kX);
  if (!options.parameter_grads) return {x};
  const TensorSpec& statistic = context.input(In::kMean);
  return {x, statistic, statistic};
}

}  // namespace

NormCall norm_pool_call(const KernelContext& context) {
  using In = NormPoolInput;
  using Out = NormPoolOutput;
  const auto& options = context.attributes<BatchNormReluMaxPoolOptions>();
  return {.view = norm_view(context.input(In::kX).shape, options.layout),
          .options = {.epsilon = options.epsilon,
                      .momentum = options.momentum,
                      .training = true,
                      .activation = Activation::kRelu},
          .main = {.x = context.input(In::kX),
                   .weight = context.input(In::kWeight),
                   .bias = context.input(In::kBias),
                   .running_mean = context.input(In::kRunningMean),
                   .running_var = context.input(In::kRunningVar),
                   .sums = context.input(In::kSums),
                   .mean = context.output(Out::kMean),
                   .inv_std = context.output(Out::kInvStd)},
          .y = context.output(Out::kY)};
}

NormGradCall norm_pool_grad_call(const KernelContext& context) {
  using In = NormPoolGradInput;
  using Out = NormPoolGradOutput;
  const auto& options = context.attributes<BatchNormReluMaxPoolGradOptions>();
  const auto wanted = [&](size_t i) { return options.parameter_grads ? context.output(i) : TensorView{}; };
  return {.view = norm_view(context.input(In::kX).shape, options.pool.layout),
          .options = {.training = true,
                      .parameter_grads = options.parameter_grads,
                      .activation = Activation::kRelu},
          .main = {.x = context.input(In::kX),
                   .weight = context.input(In::kWeight),
                   .bias = {},
                   .mean = context.input(In::kMean),
                   .inv_std = context.input(In::kInvStd),
                   .dx = context.output(Out::kDx),
                   .dweight = wanted(Out::kDweight),
                   .dbias = wanted(Out::kDbias)},
          .dy = {}};
}

Tensor batch_norm_relu_max_pool(const Tensor& x, const NormParameters& norm,
                                const BatchNormReluMaxPoolOptions& options) {
  static const Op& op = builtin("batch_norm_relu_max_pool");
  BatchNormReluMaxPoolOptions wanted = options;
  const std::initializer_list<Tensor> learned = {x, norm.weight, norm.bias};
  wanted.save_indices =
      options.save_indices && grad_enabled() &&
      std::any_of(learned.begin(), learned.end(), [](const Tensor& t) { return t.requires_grad(); });
  return call_single(op, {x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.sums}, wanted);
}

BatchNormReluMaxPoolGrads batch_norm_relu_max_pool_grad(const Tensor& x, const Tensor& dy,
                                                        const Tensor& indices, const NormState& norm,
                                                        const BatchNormReluMaxPoolGradOptions& options) {
  static const Op& op = builtin("batch_norm_relu_max_pool_grad");
  const std::vector<Tensor> grads = call(op, {x, dy, indices, norm.weight, norm.mean, norm.inv_std}, options);
  if (grads.size() == 1) return {grads[0], {}, {}};
  return {grads[0], grads[1], grads[2]};
}

void register_batch_norm_relu_max_pool(OpRegistry& registry);
void register_batch_norm_relu_max_pool(OpRegistry& registry) {
  using In = NormPoolInput;
  using Out = NormPoolOutput;
  registry.add({.name = "batch_norm_relu_max_pool",
                .inputs = {{"x"},
                           {"weight", true},
                           {"bias", true},
                           {.name = "running_mean", .optional = true, .mutated = true},
                           {.name = "running_var", .optional = true, .mutated = true},
                           {"sums", true}},
                .outputs = {{"y"}, {"mean", false}, {"inv_std", false}, {"indices", false}},
                .infer = infer_forward,
                .gradient = forward_gradient,
                .gradient_reads = {.inputs = reads_of({In::kX, In::kWeight}),
                                   .outputs = reads_of({Out::kMean, Out::kInvStd, Out::kIndices})},
                .traits = {.precision = Precision::kFollow,
                           .float32_inputs = ~reads_of({In::kX}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({In::kX}),
                                      .image_outputs = reads_of({Out::kY, Out::kIndices})}}});
  registry.add({.name = "batch_norm_relu_max_pool_grad",
                .inputs = {{"x"}, {"dy"}, {"indices"}, {"weight", true}, {"mean"}, {"inv_std"}},
                .outputs = {{"dx"}, {"dweight"}, {"dbias"}},
                .infer = infer_grad});
  add_pair_rule({.first = "batch_norm_act", .second = "max_pool2d", .fuse = fuse_batch_norm_pooling});
}

}  // namespace sinter::ops
