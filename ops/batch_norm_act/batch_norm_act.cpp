// batch_norm_act and its gradient as ops: checks, shapes, what the gradient reads.
#include <algorithm>
#include <span>

#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_act/cudnn_norm.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>

namespace sinter::ops {
namespace {

void check_image(const InferContext& context, size_t i) {
  if (!context.has(i)) return;
  context.expect_same_dtype(i, 0);
  context.expect_shape(i, context.shape(0));
}

/// alpha is there if and only if the activation has one.
void check_alpha(const InferContext& context, size_t i, Activation activation, int64_t channels) {
  const bool wanted = activation == Activation::kPRelu;
  SINTER_CHECK(context.has(i) == wanted, "[{}] expected alpha {} activation {} but got {}", context.tag(),
               wanted ? "with" : "only with prelu, not with", to_string(activation),
               context.has(i) ? "one" : "none");
  if (!wanted) return;
  context.expect_dtype(i, accumulate_dtype(context.input(0).dtype));
  context.expect_rank(i, 1);
  const int64_t slopes = context.shape(i).numel();
  SINTER_CHECK(slopes == 1 || slopes == channels, "[{}] expected alpha of 1 or {} elements but got {}",
               context.tag(), channels, slopes);
}

/// The parameters of one normalisation, from input `first` on, and its sums.
void check_norm(const InferContext& context, const BatchNormActOptions& options, size_t first, size_t sums,
                int64_t channels) {
  expect_norm_parameters(context, first, channels, options.training);
  if (!context.has(sums)) return;
  SINTER_CHECK(options.training, "[{}] expected sums only in training but got them in inference",
               context.tag());
  context.expect_dtype(sums, accumulate_dtype(context.input(0).dtype));
  context.expect_shape(sums, Shape{2, channels});
}

std::vector<TensorSpec> infer_batch_norm_act(const InferContext& context) {
  using In = NormActInput;
  const auto& options = context.attributes<BatchNormActOptions>();
  const int64_t channels = expect_norm_input(context, options.layout);
  const TensorSpec& x = context.input(In::kX);
  check_norm(context, options, In::kWeight, In::kSums, channels);
  check_alpha(context, In::kAlpha, options.activation, channels);
  check_image(context, In::kAddend);
  if (options.normalize_addend) {
    SINTER_CHECK(context.has(In::kAddend), "[{}] expected an addend to normalize but got none",
                 context.tag());
    check_norm(context, options, In::kAddendWeight, In::kAddendSums, channels);
  } else {
    for (size_t i = In::kAddendWeight; i <= In::kAddendSums; ++i) {
      SINTER_CHECK(!context.has(i), "[{}] expected {} only with normalize_addend", context.tag(),
                   context.op().input_def(i).name);
    }
  }
  expect_norm_options(context, options.epsilon, options.momentum, options.training, options.layout);
  const bool on_cudnn = options.backend == NormBackend::kCudnn;
  SINTER_CHECK(options.reserve_bytes >= 0 && (on_cudnn || options.reserve_bytes == 0),
               "[{}] expected reserve_bytes of 0 or, with cudnn, more but got {} with {}", context.tag(),
               options.reserve_bytes, to_string(options.backend));
  const TensorSpec statistic{Shape{channels}, accumulate_dtype(x.dtype), x.device};
  const bool masked = (options.activation != Activation::kNone && options.save_mask) || on_cudnn;
  const int64_t bytes = on_cudnn ? options.reserve_bytes : masked ? mask_bytes(x.shape.numel()) : 0;
  const TensorSpec mask{Shape{bytes}, DType::kUInt8, x.device};
  if (options.normalize_addend) return {x, statistic, statistic, mask, statistic, statistic};
  if (masked) return {x, statistic, statistic, mask};
  return {x, statistic, statistic};
}

/// The addend is read where it is normalised or where PReLU's argument is found again.
bool reads_addend(const BatchNormActOptions& options) {
  return options.normalize_addend || options.activation == Activation::kPRelu;
}

std::vector<Tensor> batch_norm_act_gradient(const GradientContext& context) {
  using In = NormActInput;
  using Out = NormActOutput;
  const auto& options = context.attributes<BatchNormActOptions>();
  const bool on_cudnn = options.backend == NormBackend::kCudnn;
  const bool masked = options.activation != Activation::kNone;
  SINTER_CHECK(!masked || options.save_mask,
               "[batch_norm_act] expected save_mask for a gradient but it is off");
  std::vector<Tensor> grads(In::kCount);
  if (context.needs(In::kAddend) && !options.normalize_addend && !masked) grads[In::kAddend] = context.grad();
  const std::initializer_list<size_t> parameters = {In::kWeight, In::kBias, In::kAlpha, In::kAddendWeight,
                                                    In::kAddendBias};
  const BatchNormActGradOptions grad_options{
      .training = options.training,
      .parameter_grads = on_cudnn || std::any_of(parameters.begin(), parameters.end(),
                                                 [&](size_t i) { return context.needs(i); }),
      .addend_grad = on_cudnn ? context.input(In::kAddend).defined()
                              : context.needs(In::kAddend) && !grads[In::kAddend].defined(),
      .layout = options.layout,
      .activation = options.activation,
      .normalize_addend = options.normalize_addend,
      .backend = options.backend,
      .epsilon = options.epsilon};
  const NormState norm{context.input(In::kWeight), context.input(In::kBias), context.output(Out::kMean),
                       context.output(Out::kInvStd)};
  NormState addend_norm;
  if (options.normalize_addend) {
    addend_norm = {context.input(In::kAddendWeight), context.input(In::kAddendBias),
                   context.output(Out::kAddendMean), context.output(Out::kAddendInvStd)};
  }
  const BatchNormActGrads all = batch_norm_act_grad(
      context.input(In::kX), norm, context.grad(), {}, masked ? context.output(Out::kMask) : Tensor(),
      grad_options, context.input(In::kAlpha), reads_addend(options) ? context.input(In::kAddend) : Tensor(),
      addend_norm);
  const auto give = [&](size_t i, const Tensor& grad) {
    if (context.needs(i) && !grads[i].defined()) grads[i] = grad;
  };
  give(In::kX, all.dx);
  give(In::kWeight, all.dweight);
  give(In::kBias, all.dbias);
  give(In::kAlpha, all.dalpha);
  give(In::kAddend, all.daddend);
  give(In::kAddendWeight, all.daddend_weight);
  give(In::kAddendBias, all.daddend_bias);
  return grads;
}

std::vector<TensorSpec> infer_batch_norm_act_grad(const InferContext& context) {
  using In = NormActGradInput;
  const auto& options = context.attributes<BatchNormActGradOptions>();
  const int64_t channels = expect_norm_input(context, options.layout);
  const TensorSpec& x = context.input(In::kX);
  check_image(context, In::kDy);
  check_image(context, In::kDy2);
  for (size_t i = In::kWeight; i <= In::kInvStd; ++i) expect_channel_vector(context, i, channels);
  check_alpha(context, In::kAlpha, options.activation, channels);
  check_image(context, In::kAddend);
  const bool masked = options.activation != Activation::kNone;
  SINTER_CHECK(context.has(In::kMask) == masked, "[{}] expected {} mask with activation {}", context.tag(),
               masked ? "a" : "no", to_string(options.activation));
  if (masked) {
    context.expect_dtype(In::kMask, DType::kUInt8);
    if (options.backend == NormBackend::kSinter)
      context.expect_shape(In::kMask, Shape{mask_bytes(x.shape.numel())});
  }
  if (options.normalize_addend) {
    SINTER_CHECK(context.has(In::kAddend) && context.has(In::kAddendMean) && context.has(In::kAddendInvStd),
                 "[{}] expected the normalized addend with its mean and inv_std", context.tag());
    for (size_t i = In::kAddendWeight; i <= In::kAddendInvStd; ++i)
      expect_channel_vector(context, i, channels);
  }
  const TensorSpec none{Shape{0}, x.dtype, x.device};
  const TensorSpec no_statistic{Shape{0}, accumulate_dtype(x.dtype), x.device};
  const TensorSpec parameter = options.parameter_grads ? context.input(In::kMean) : no_statistic;
  const TensorSpec alpha = options.parameter_grads && options.activation == Activation::kPRelu
                               ? context.input(In::kAlpha)
                               : no_statistic;
  const TensorSpec addend_parameter = options.normalize_addend ? parameter : no_statistic;
  return {x, parameter, parameter, options.addend_grad ? x : none, alpha, addend_parameter, addend_parameter};
}

/// cuDNN takes one gradient.
bool can_sum_gradients(const Attributes& call) {
  return call.as<BatchNormActGradOptions>().backend == NormBackend::kSinter;
}

}  // namespace

Tensor batch_norm_act(const Tensor& x, const NormParameters& norm, const BatchNormActOptions& options,
                      const Tensor& alpha, const Tensor& addend, const NormParameters& addend_norm) {
  static const Op& op = builtin("batch_norm_act");
  const std::initializer_list<Tensor> inputs = {x,
                                                norm.weight,
                                                norm.bias,
                                                norm.running_mean,
                                                norm.running_var,
                                                norm.sums,
                                                alpha,
                                                addend,
                                                addend_norm.weight,
                                                addend_norm.bias,
                                                addend_norm.running_mean,
                                                addend_norm.running_var,
                                                addend_norm.sums};
  BatchNormActOptions wanted = options;
  wanted.save_mask =
      options.save_mask && grad_enabled() &&
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.requires_grad(); });
  if (options.backend == NormBackend::kCudnn && x.defined()) {
    std::vector<const TensorSpec*> specs;
    for (const Tensor& input : inputs) specs.push_back(input.defined() ? &input.spec() : nullptr);
    wanted.reserve_bytes = norm_reserve_bytes(specs, wanted);
  }
  return call_single(op, inputs, wanted);
}

int64_t norm_reserve_bytes(std::span<const TensorSpec* const> inputs, const BatchNormActOptions& options) {
  static const Op& op = builtin("batch_norm_act");
  const Attributes attributes(options);
  const InferContext infer(op.definition, inputs, attributes);
  const std::vector<TensorSpec> outputs = op.definition.infer(infer);
  if (options.backend == NormBackend::kSinter) return 0;
  const KernelQuery query(infer, outputs);
  if (const auto constraint = cudnn_norm_constraint(&query, nullptr))
    throw_error<Unsupported>("[batch_norm_act] cuDNN cannot run this call: {}", *constraint);
  return cudnn_norm().reserve_bytes(query);
}

BatchNormActGrads batch_norm_act_grad(const Tensor& x, const NormState& norm, const Tensor& dy,
                                      const Tensor& dy2, const Tensor& mask,
                                      const BatchNormActGradOptions& options, const Tensor& alpha,
                                      const Tensor& addend, const NormState& addend_norm) {
  using Out = NormActGradOutput;
  static const Op& op = builtin("batch_norm_act_grad");
  const std::vector<Tensor> grads =
      call(op,
           {x, dy, dy2, mask, norm.weight, norm.bias, norm.mean, norm.inv_std, alpha, addend,
            addend_norm.weight, addend_norm.bias, addend_norm.mean, addend_norm.inv_std},
           options);
  BatchNormActGrads result;
  result.dx = grads[Out::kDx];
  if (options.addend_grad) result.daddend = grads[Out::kDaddend];
  if (!options.parameter_grads) return result;
  result.dweight = grads[Out::kDweight];
  result.dbias = grads[Out::kDbias];
  if (options.activation == Activation::kPRelu) result.dalpha = grads[Out::kDalpha];
  if (options.normalize_addend) {
    result.daddend_weight = grads[Out::kDaddendWeight];
    result.daddend_bias = grads[Out::kDaddendBias];
  }
  return result;
}

void register_batch_norm_act(OpRegistry& registry);
void register_batch_norm_act(OpRegistry& registry) {
  using In = NormActInput;
  using Out = NormActOutput;
  registry.add({.name = "batch_norm_act",
                .inputs = {{"x"},
                           {"weight", true},
                           {"bias", true},
                           {.name = "running_mean", .optional = true, .mutated = true},
                           {.name = "running_var", .optional = true, .mutated = true},
                           {"sums", true},
                           {"alpha", true},
                           {"addend", true},
                           {"addend_weight", true},
                           {"addend_bias", true},
                           {.name = "addend_running_mean", .optional = true, .mutated = true},
                           {.name = "addend_running_var", .optional = true, .mutated = true},
                           {"addend_sums", true}},
                .outputs = {{"y"},
                            {"mean", false},
                            {"inv_std", false},
                            {"mask", false},
                            {"addend_mean", false},
                            {"addend_inv_std", false}},
                .infer = infer_batch_norm_act,
                .gradient = batch_norm_act_gradient,
                .gradient_reads = {.inputs = reads_of({In::kX, In::kWeight, In::kBias, In::kAlpha,
                                                       In::kAddend, In::kAddendWeight, In::kAddendBias}),
                                   .outputs = reads_of({Out::kMean, Out::kInvStd, Out::kMask,
                                                        Out::kAddendMean, Out::kAddendInvStd})},
                .traits = {.precision = Precision::kFollow,
                           .float32_inputs = ~reads_of({In::kX, In::kAddend}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({In::kX, In::kAddend})}},
                .changes = [](const Attributes& call) { return call.as<BatchNormActOptions>().training; },
                .choose = choose_by_time});
  registry.add(
      {.name = "batch_norm_act_grad",
       .inputs = {{"x"},
                  {"dy"},
                  {"dy2", true},
                  {"mask", true},
                  {"weight", true},
                  {"bias", true},
                  {"mean"},
                  {"inv_std"},
                  {"alpha", true},
                  {"addend", true},
                  {"addend_weight", true},
                  {"addend_bias", true},
                  {"addend_mean", true},
                  {"addend_inv_std", true}},
       .outputs =
           {{"dx"}, {"dweight"}, {"dbias"}, {"daddend"}, {"dalpha"}, {"daddend_weight"}, {"daddend_bias"}},
       .infer = infer_batch_norm_act_grad,
       .traits = {.summed_input = {.first = NormActGradInput::kDy,
                                   .second = NormActGradInput::kDy2,
                                   .can = can_sum_gradients}},
       .choose = choose_by_time});
}

}  // namespace sinter::ops
