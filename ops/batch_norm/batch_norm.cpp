#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/norm_call.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

/// Checks x's shape and gives its axis of channels.
int channel_axis(const InferContext& context, Layout layout) {
  context.expect_float(0);
  context.expect_rank(0, {2, 4});
  return norm_axis(context.shape(0), layout);
}

void expect_parameter(const InferContext& context, size_t i, int64_t channels) {
  if (!context.has(i)) return;
  context.expect_dtype(i, accumulate_dtype(context.input(0).dtype));
  context.expect_shape(i, Shape{channels});
}

std::vector<TensorSpec> infer_batch_norm(const InferContext& context) {
  const auto& options = context.attributes<BatchNormOptions>();
  const int axis = channel_axis(context, options.layout);
  const TensorSpec& x = context.input(0);
  const int64_t channels = x.shape[axis];
  for (size_t i = 1; i <= 4; ++i) expect_parameter(context, i, channels);
  SINTER_CHECK(options.epsilon > 0, "[{}] expected epsilon > 0 but got {}", context.tag(), options.epsilon);
  SINTER_CHECK(options.momentum >= 0 && options.momentum <= 1, "[{}] expected momentum in [0, 1] but got {}",
               context.tag(), options.momentum);
  SINTER_CHECK(context.has(3) == context.has(4),
               "[{}] expected both running_mean and running_var or neither but got only {}", context.tag(),
               context.has(3) ? "running_mean" : "running_var");
  SINTER_CHECK(options.training || context.has(3),
               "[{}] expected running_mean and running_var in inference but got none", context.tag());
  SINTER_CHECK(!options.training || x.shape.without(axis).numel() != 1,
               "[{}] expected more than 1 value per channel in training but got shape {}", context.tag(),
               x.shape);
  const TensorSpec statistic{Shape{channels}, accumulate_dtype(x.dtype), x.device};
  return {x, statistic, statistic};
}

std::vector<Tensor> batch_norm_gradient(const GradientContext& context) {
  const auto& options = context.attributes<BatchNormOptions>();
  const BatchNormGradOptions grad_options{.training = options.training,
                                          .parameter_grads = context.needs(1) || context.needs(2),
                                          .layout = options.layout};
  BatchNormGrads grads = batch_norm_grad(context.input(0), context.grad(), context.input(1),
                                         context.output(1), context.output(2), grad_options);
  if (!context.needs(1)) grads.dweight = {};
  if (!context.needs(2)) grads.dbias = {};
  return {grads.dx, grads.dweight, grads.dbias, {}, {}};
}

std::vector<TensorSpec> infer_batch_norm_grad(const InferContext& context) {
  const auto& options = context.attributes<BatchNormGradOptions>();
  const int64_t channels = context.shape(0)[channel_axis(context, options.layout)];
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  for (size_t i = 2; i <= 4; ++i) expect_parameter(context, i, channels);
  const TensorSpec& x = context.input(0);
  if (!options.parameter_grads) return {x};
  const TensorSpec& statistic = context.input(3);
  return {x, statistic, statistic};
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& options) {
  static const Op& op = builtin("batch_norm");
  return call_single(op, {x, weight, bias, running_mean, running_var}, options);
}

BatchNormGrads batch_norm_grad(const Tensor& x, const Tensor& dy, const Tensor& weight, const Tensor& mean,
                               const Tensor& inv_std, const BatchNormGradOptions& options) {
  static const Op& op = builtin("batch_norm_grad");
  const std::vector<Tensor> grads = call(op, {x, dy, weight, mean, inv_std}, options);
  if (grads.size() == 1) return {grads[0], {}, {}};
  return {grads[0], grads[1], grads[2]};
}

void register_batch_norm(OpRegistry& registry);
void register_batch_norm(OpRegistry& registry) {
  // The gradient reads the statistics from the outputs, not the running ones, which may have moved on by
  // then.
  registry.add({.name = "batch_norm",
                .inputs = {{"x"},
                           {"weight", true},
                           {"bias", true},
                           {.name = "running_mean", .optional = true, .mutated = true},
                           {.name = "running_var", .optional = true, .mutated = true}},
                .outputs = {{"y"}, {"mean", false}, {"inv_std", false}},
                .infer = infer_batch_norm,
                .gradient = batch_norm_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1}), .outputs = reads_of({1, 2})}});
  registry.add({.name = "batch_norm_grad",
                .inputs = {{"x"}, {"dy"}, {"weight", true}, {"mean"}, {"inv_std"}},
                .outputs = {{"dx"}, {"dweight"}, {"dbias"}},
                .infer = infer_batch_norm_grad});
  register_batch_norm_act(registry);
}

}  // namespace sinter::ops
