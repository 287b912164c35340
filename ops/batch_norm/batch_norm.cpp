// batch_norm and its gradient as ops: checks, shapes, what the gradient reads.
#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_batch_norm(const InferContext& context) {
  const auto& options = context.attributes<BatchNormOptions>();
  const int64_t channels = expect_norm_input(context, options.layout);
  expect_norm_parameters(context, 1, channels, options.training);
  expect_norm_options(context, options.epsilon, options.momentum, options.training, options.layout);
  const TensorSpec& x = context.input(0);
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

/// The same result from the statistics that were used.
Tensor compute_again(const FoundCall& call, const std::vector<Tensor>& outputs) {
  const Layout layout = call.attributes.as<BatchNormOptions>().layout;
  return batch_norm_act(
      call.inputs[0],
      {.weight = call.inputs[1], .bias = call.inputs[2], .mean = outputs[1], .inv_std = outputs[2]},
      {.training = false, .layout = layout, .activation = Activation::kNone});
}

std::vector<TensorSpec> infer_batch_norm_grad(const InferContext& context) {
  const auto& options = context.attributes<BatchNormGradOptions>();
  const int64_t channels = expect_norm_input(context, options.layout);
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  for (size_t i = 2; i <= 4; ++i) expect_channel_vector(context, i, channels);
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

void register_batch_norm_act(OpRegistry& registry);  // batch_norm_act.cpp
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
                .gradient_reads = {.inputs = reads_of({0, 1}), .outputs = reads_of({1, 2})},
                .traits = {.precision = Precision::kFollow,
                           .float32_inputs = reads_of({1, 2, 3, 4}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})},
                           .role = Role::kNormalization,
                           .fuse_norm = fuse_batch_norm},
                .changes = [](const Attributes& call) { return call.as<BatchNormOptions>().training; },
                .choose = choose_by_time});
  registry.add({.name = "batch_norm_grad",
                .inputs = {{"x"}, {"dy"}, {"weight", true}, {"mean"}, {"inv_std"}},
                .outputs = {{"dx"}, {"dweight"}, {"dbias"}},
                .infer = infer_batch_norm_grad,
                .choose = choose_by_time});
  add_recompute_rule({.op = "batch_norm",
                      .reads = {.inputs = reads_of({0, 1, 2}), .outputs = reads_of({1, 2})},
                      .compute = compute_again});
  register_batch_norm_act(registry);
}

}  // namespace sinter::ops
