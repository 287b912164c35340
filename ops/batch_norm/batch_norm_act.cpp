// batch_norm_act and its gradient as ops: checks, shapes, what the gradient reads.
#include <algorithm>
#include <span>

#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/batch_norm/cudnn_norm.h>
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
void check_alpha(const InferContext& context, size_t i, fused::Activation activation, int64_t channels) {
  const bool wanted = activation == fused::Activation::kPRelu;
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

/// What belongs to one normalised tensor: its parameters, and statistics that are learned, or given.
void check_norm(const InferContext& context, const BatchNormActOptions& options, const NormActPlaces& at,
                bool given, int64_t channels) {
  const char* const tag = context.tag();
  expect_norm_parameters(context, at.weight, channels, options.training || given);
  const size_t sums = at.weight + 4;
  if (context.has(sums)) {
    SINTER_CHECK(options.training, "[{}] expected sums only in training but got them in inference", tag);
    context.expect_dtype(sums, accumulate_dtype(context.input(0).dtype));
    context.expect_shape(sums, Shape{2, channels});
  }
  SINTER_CHECK(context.has(at.mean) == given && context.has(at.mean + 1) == given,
               "[{}] expected mean and inv_std of all that is normalised or of nothing", tag);
  if (!given) return;
  expect_channel_vector(context, at.mean, channels);
  expect_channel_vector(context, at.mean + 1, channels);
  SINTER_CHECK(!options.training && !context.has(at.weight + 2),
               "[{}] expected given statistics without running ones and not in training", tag);
}

std::vector<TensorSpec> infer_batch_norm_act(const InferContext& context) {
  using In = NormActInput;
  const auto& options = context.attributes<BatchNormActOptions>();
  const int64_t channels = expect_norm_input(context, options.layout);
  const TensorSpec& x = context.input(In::kX);
  const bool given = context.has(In::kMean);
  check_norm(context, options, kMainPlaces, given, channels);
  SINTER_CHECK(context.has(In::kShare) <= given, "[{}] expected a share only of given statistics",
               context.tag());
  if (context.has(In::kShare)) {
    context.expect_dtype(In::kShare, accumulate_dtype(x.dtype));
    context.expect_shape(In::kShare, Shape{1});
  }
  check_alpha(context, In::kAlpha, options.activation, channels);
  check_image(context, In::kAddend);
  if (options.normalize_addend) {
    SINTER_CHECK(context.has(In::kAddend), "[{}] expected an addend to normalize but got none",
                 context.tag());
    check_norm(context, options, kAddendPlaces, given, channels);
  } else {
    for (const size_t i : {In::kAddendWeight, In::kAddendBias, In::kAddendRunningMean, In::kAddendRunningVar,
                           In::kAddendSums, In::kAddendMean, In::kAddendInvStd}) {
      SINTER_CHECK(!context.has(i), "[{}] expected {} only with normalize_addend", context.tag(),
                   context.op().input_def(i).name);
    }
  }
  expect_norm_options(context, options.epsilon, options.momentum, options.training, options.layout);
  const bool on_cudnn = options.backend == NormBackend::kCudnn;
  SINTER_CHECK(options.reserve_bytes >= 0 && (on_cudnn || options.reserve_bytes == 0),
               "[{}] expected reserve_bytes of 0 or, with cudnn, more but got {} with {}", context.tag(),
               options.reserve_bytes, to_string(options.backend));
  const TensorSpec statistic{Shape{given ? 0 : channels}, accumulate_dtype(x.dtype), x.device};
  const bool masked = (options.activation != fused::Activation::kNone && options.save_mask) || on_cudnn;
  const int64_t bytes = on_cudnn ? options.reserve_bytes : masked ? mask_bytes(x.shape.numel()) : 0;
  const TensorSpec mask{Shape{bytes}, DType::kUInt8, x.device};
  if (options.normalize_addend && !given) return {x, statistic, statistic, mask, statistic, statistic};
  if (masked) return {x, statistic, statistic, mask};
  if (given) return {x};
  return {x, statistic, statistic};
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
  const bool masked = options.activation != fused::Activation::kNone;
  SINTER_CHECK(context.has(In::kMask) == masked, "[{}] expected {} mask with activation {}", context.tag(),
               masked ? "a" : "no", to_string(options.activation));
  if (masked) {
    context.expect_dtype(In::kMask, DType::kUInt8);
    if (options.backend == NormBackend::kSinter)
      context.expect_shape(In::kMask, Shape{mask_bytes(x.shape.numel())});
  }
  SINTER_CHECK(
      !options.addend_grad || options.activation != fused::Activation::kPRelu || context.has(In::kAddend),
      "[{}] expected the addend beside its gradient with prelu but got none", context.tag());
  if (options.normalize_addend) {
    SINTER_CHECK(context.has(In::kAddend) && context.has(In::kAddendMean) && context.has(In::kAddendInvStd),
                 "[{}] expected the normalized addend with its mean and inv_std", context.tag());
    for (size_t i = In::kAddendWeight; i <= In::kAddendInvStd; ++i)
      expect_channel_vector(context, i, channels);
  }
  const TensorSpec none{Shape{0}, x.dtype, x.device};
  const TensorSpec no_statistic{Shape{0}, accumulate_dtype(x.dtype), x.device};
  const TensorSpec parameter = options.parameter_grads ? context.input(In::kMean) : no_statistic;
  const TensorSpec alpha = options.parameter_grads && options.activation == fused::Activation::kPRelu
                               ? context.input(In::kAlpha)
                               : no_statistic;
  const TensorSpec addend_parameter = options.normalize_addend ? parameter : no_statistic;
  return {x, parameter, parameter, options.addend_grad ? x : none, alpha, addend_parameter, addend_parameter};
}

/// The same results from the statistics that were used.
Tensor compute_again(const FoundCall& call, const std::vector<Tensor>& outputs) {
  using In = NormActInput;
  const auto input = [&](size_t i) { return i < call.inputs.size() ? call.inputs[i] : Tensor(); };
  const auto known = [&](const NormActPlaces& at) {
    const bool given = input(at.mean).defined();
    return NormTensors{.weight = input(at.weight),
                       .bias = input(at.weight + 1),
                       .mean = given ? input(at.mean) : outputs[at.mean_output],
                       .inv_std = given ? input(at.mean + 1) : outputs[at.mean_output + 1]};
  };
  const auto& options = call.attributes.as<BatchNormActOptions>();
  return fused::batch_norm_act(input(In::kX), known(kMainPlaces), input(In::kAddend),
                               options.normalize_addend ? known(kAddendPlaces) : NormTensors{},
                               input(In::kAlpha),
                               {.training = false,
                                .layout = options.layout,
                                .activation = options.activation,
                                .normalize_addend = options.normalize_addend});
}

/// cuDNN takes one gradient.
bool can_sum_gradients(const Attributes& call) {
  return call.as<BatchNormActGradOptions>().backend == NormBackend::kSinter;
}

}  // namespace

Tensor fused::batch_norm_act(const Tensor& x, const NormTensors& norm, const Tensor& addend,
                             const NormTensors& addend_norm, const Tensor& alpha,
                             const BatchNormActOptions& options) {
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
                                                addend_norm.sums,
                                                norm.mean,
                                                norm.inv_std,
                                                addend_norm.mean,
                                                addend_norm.inv_std,
                                                norm.share};
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

// In 16 bits dx may follow from the addend's gradient as it is written, rounded, where that is wanted:
// kernels then read it in place of dy, dy2 and the mask.
BatchNormActGrads vjp::batch_norm_act(const Tensor& dy, const Tensor& dy2, const Tensor& x,
                                      const NormState& norm, const Tensor& addend,
                                      const NormState& addend_norm, const Tensor& alpha, const Tensor& mask,
                                      const BatchNormActGradOptions& options) {
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
  if (options.activation == fused::Activation::kPRelu) result.dalpha = grads[Out::kDalpha];
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
  constexpr uint64_t used =
      reads_of({In::kX, In::kWeight, In::kBias, In::kAlpha, In::kAddend, In::kAddendWeight, In::kAddendBias,
                In::kMean, In::kInvStd, In::kAddendMean, In::kAddendInvStd});
  constexpr uint64_t statistics = reads_of({Out::kMean, Out::kInvStd, Out::kAddendMean, Out::kAddendInvStd});
  constexpr uint64_t mask = reads_of({Out::kMask});
  registry.add(
      {.name = "batch_norm_act",
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
                  {"addend_sums", true},
                  {"mean", true},
                  {"inv_std", true},
                  {"addend_mean", true},
                  {"addend_inv_std", true},
                  {"share", true}},
       .outputs = {{"y"},
                   {"mean", false},
                   {"inv_std", false},
                   {"mask", false},
                   {"addend_mean", false},
                   {"addend_inv_std", false}},
       .infer = infer_batch_norm_act,
       .gradient = batch_norm_act_gradient,
       .gradient_reads = {.inputs = used | reads_of({In::kShare}), .outputs = statistics | mask},
       .traits = {.precision = Precision::kFollow,
                  .float32_inputs = ~reads_of({In::kX, In::kAddend}),
                  .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({In::kX, In::kAddend})},
                  .role = Role::kNormalization,
                  .fuse_norm = fuse_batch_norm},
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
  add_recompute_rule(
      {.op = "batch_norm_act", .reads = {.inputs = used, .outputs = statistics}, .compute = compute_again});
}

}  // namespace sinter::ops
