// normalize_act as an op, and how it computes results of the ops of batch normalisation again.
#include <sinter/core/op/norm_chain.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>
#include <sinter/ops/normalize_act/normalize_act.h>
#include <sinter/ops/normalize_act/normalize_act_call.h>

namespace sinter::ops {
namespace {

/// The statistics and parameters of one tensor, from input `first` on.
void check_state(const InferContext& context, size_t first, bool wanted, int64_t channels) {
  for (size_t i = first; i < first + 4; ++i) {
    expect_channel_vector(context, i, channels);
    SINTER_CHECK(wanted || !context.has(i), "[{}] expected {} only with normalize_addend", context.tag(),
                 context.op().input_def(i).name);
  }
  SINTER_CHECK(!wanted || (context.has(first + 2) && context.has(first + 3)),
               "[{}] expected {} and {} but got none", context.tag(), context.op().input_def(first + 2).name,
               context.op().input_def(first + 3).name);
}

std::vector<TensorSpec> infer_normalize_act(const InferContext& context) {
  using In = NormalizeActInput;
  const auto& options = context.attributes<NormalizeActOptions>();
  const int64_t channels = expect_norm_input(context, options.layout);
  const TensorSpec& x = context.input(In::kX);
  check_state(context, In::kWeight, true, channels);
  const bool has_slopes = options.activation == Activation::kPRelu;
  SINTER_CHECK(context.has(In::kAlpha) == has_slopes, "[{}] expected alpha with prelu only, got {} with {}",
               context.tag(), context.has(In::kAlpha) ? "one" : "none", to_string(options.activation));
  if (has_slopes) {
    context.expect_dtype(In::kAlpha, accumulate_dtype(x.dtype));
    context.expect_rank(In::kAlpha, 1);
    const int64_t slopes = context.shape(In::kAlpha).numel();
    SINTER_CHECK(slopes == 1 || slopes == channels, "[{}] expected alpha of 1 or {} elements but got {}",
                 context.tag(), channels, slopes);
  }
  SINTER_CHECK(context.has(In::kAddend) || !options.normalize_addend,
               "[{}] expected an addend to normalize but got none", context.tag());
  if (context.has(In::kAddend)) {
    context.expect_same_dtype(In::kAddend, In::kX);
    context.expect_shape(In::kAddend, x.shape);
  }
  check_state(context, In::kAddendWeight, options.normalize_addend, channels);
  return {x};
}

Tensor batch_norm_again(const FoundCall& call, const std::vector<Tensor>& outputs) {
  const NormState state{call.inputs[1], call.inputs[2], outputs[1], outputs[2]};
  return normalize_act(call.inputs[0], state, {.layout = call.attributes.as<BatchNormOptions>().layout});
}

Tensor batch_norm_act_again(const FoundCall& call, const std::vector<Tensor>& outputs) {
  using In = NormActInput;
  using Out = NormActOutput;
  const auto& options = call.attributes.as<BatchNormActOptions>();
  const auto input = [&](size_t i) { return i < call.inputs.size() ? call.inputs[i] : Tensor(); };
  const NormState state{input(In::kWeight), input(In::kBias), outputs[Out::kMean], outputs[Out::kInvStd]};
  NormState addend_state;
  if (options.normalize_addend) {
    addend_state = {input(In::kAddendWeight), input(In::kAddendBias), outputs[Out::kAddendMean],
                    outputs[Out::kAddendInvStd]};
  }
  return normalize_act(input(In::kX), state,
                       {.layout = options.layout,
                        .activation = options.activation,
                        .normalize_addend = options.normalize_addend},
                       input(In::kAlpha), input(In::kAddend), addend_state);
}

}  // namespace

Tensor normalize_act(const Tensor& x, const NormState& norm, const NormalizeActOptions& options,
                     const Tensor& alpha, const Tensor& addend, const NormState& addend_norm) {
  static const Op& op = builtin("normalize_act");
  return call_single(op,
                     {x, norm.weight, norm.bias, norm.mean, norm.inv_std, alpha, addend, addend_norm.weight,
                      addend_norm.bias, addend_norm.mean, addend_norm.inv_std},
                     options);
}

void register_normalize_act(OpRegistry& registry);
void register_normalize_act(OpRegistry& registry) {
  using In = NormalizeActInput;
  registry.add({.name = "normalize_act",
                .inputs = {{"x"},
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
                .outputs = {{"y", false}},
                .infer = infer_normalize_act,
                .traits = {.precision = Precision::kFollow,
                           .float32_inputs = ~reads_of({In::kX, In::kAddend}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({In::kX, In::kAddend})}}});
  using Norm = NormActInput;
  using Out = NormActOutput;
  add_recompute_rule({.op = "batch_norm",
                      .reads = {.inputs = reads_of({0, 1, 2}), .outputs = reads_of({1, 2})},
                      .compute = batch_norm_again});
  add_recompute_rule(
      {.op = "batch_norm_act",
       .reads = {.inputs = reads_of({Norm::kX, Norm::kWeight, Norm::kBias, Norm::kAlpha, Norm::kAddend,
                                     Norm::kAddendWeight, Norm::kAddendBias}),
                 .outputs = reads_of({Out::kMean, Out::kInvStd, Out::kAddendMean, Out::kAddendInvStd})},
       .compute = batch_norm_act_again});
}

}  // namespace sinter::ops
