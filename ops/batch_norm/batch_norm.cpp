// batch_norm and its gradient as ops: checks, shapes, what the gradient reads.
#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

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

/// The gradients in ops that have gradients themselves; the statistics of a batch are computed again, as
/// functions of x.
std::vector<Tensor> composed_gradient(const GradientContext& context) {
  const auto& options = context.attributes<BatchNormOptions>();
  const TensorSpec& given = context.input_spec(0);
  const int channel = options.layout == Layout::kNHWC ? given.shape.rank() - 1 : 1;
  std::vector<int64_t> beside(static_cast<size_t>(given.shape.rank()), 1), axes;
  beside[static_cast<size_t>(channel)] = given.shape[channel];
  for (int axis = 0; axis < given.shape.rank(); ++axis) {
    if (axis != channel) axes.push_back(axis);
  }
  const DType dtype = accumulate_dtype(given.dtype);
  const Tensor x = cast(context.input(0), dtype), dy = cast(context.grad(), dtype), weight = context.input(1);
  // Else they are constants.
  Tensor mean_of =
      options.training ? mean(x, axes, {.keep_dims = true}) : reshape(context.output(1).detach(), beside);
  const Tensor centred = sub(x, mean_of);
  const Tensor inv_std =
      options.training ? rsqrt(affine(mean(square(centred), axes, {.keep_dims = true}), 1.0, options.epsilon))
                       : reshape(context.output(2).detach(), beside);
  const Tensor normalized = mul(centred, inv_std);
  std::vector<Tensor> gradients(5);
  if (context.needs(0)) {
    Tensor scaled = weight.defined() ? mul(dy, cast(reshape(weight, beside), dtype)) : dy;
    if (options.training) {
      const Tensor along = mul(normalized, mean(mul(scaled, normalized), axes, {.keep_dims = true}));
      scaled = sub(sub(scaled, mean(scaled, axes, {.keep_dims = true})), along);
    }
    gradients[0] = cast(mul(scaled, inv_std), given.dtype);
  }
  const auto summed = [&](const Tensor& terms, size_t i) {
    return cast(sum(terms, axes), context.input_spec(i).dtype);
  };
  if (context.needs(1)) gradients[1] = summed(mul(dy, normalized), 1);
  if (context.needs(2)) gradients[2] = summed(dy, 2);
  return gradients;
}

std::vector<Tensor> batch_norm_gradient(const GradientContext& context) {
  if (grad_enabled()) return composed_gradient(context);
  const auto& options = context.attributes<BatchNormOptions>();
  const BatchNormGradOptions grad_options{.training = options.training,
                                          .parameter_grads = context.needs(1) || context.needs(2),
                                          .layout = options.layout};
  BatchNormGrads grads = vjp::batch_norm(context.grad(), context.input(0), context.input(1),
                                         context.output(1), context.output(2), grad_options);
  if (!context.needs(1)) grads.dweight = {};
  if (!context.needs(2)) grads.dbias = {};
  return {grads.dx, grads.dweight, grads.dbias, {}, {}};
}

/// The same result from the statistics that were used.
Tensor compute_again(const FoundCall& call, const std::vector<Tensor>& outputs) {
  const Layout layout = call.attributes.as<BatchNormOptions>().layout;
  return fused::batch_norm_act(
      call.inputs[0],
      {.weight = call.inputs[1], .bias = call.inputs[2], .mean = outputs[1], .inv_std = outputs[2]}, {}, {},
      {}, {.training = false, .layout = layout, .activation = fused::Activation::kNone});
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

BatchNormGrads vjp::batch_norm(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
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
