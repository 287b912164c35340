// From a call of batch_norm_act, or of its gradient, to what the kernels of ops/norm take.
#include <algorithm>
#include <initializer_list>

#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>

namespace sinter::ops {
namespace {

/// Those of the inputs that are there begin at multiples of 16 bytes.
bool are_aligned(const KernelQuery& query, std::initializer_list<size_t> inputs) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](size_t i) { return !query.has_input(i) || query.is_aligned(i, 16); });
}

NormOptions norm_options(const BatchNormActOptions& options) {
  return {.epsilon = options.epsilon,
          .momentum = options.momentum,
          .training = options.training,
          .activation = options.activation,
          .normalize_addend = options.normalize_addend};
}

NormGradOptions norm_options(const BatchNormActGradOptions& options) {
  return {.training = options.training,
          .parameter_grads = options.parameter_grads,
          .activation = options.activation,
          .normalize_addend = options.normalize_addend};
}

}  // namespace

NormProblem batch_norm_act_problem(const KernelQuery& query) {
  using In = NormActInput;
  const auto& options = query.attributes<BatchNormActOptions>();
  const TensorSpec& x = query.input(In::kX);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .options = norm_options(options),
          .has_sums = query.has_input(In::kSums),
          .has_mask = options.save_mask,
          .aligned = are_aligned(query, {In::kX, In::kAddend})};
}

NormCall batch_norm_act_call(const KernelContext& context) {
  using In = NormActInput;
  using Out = NormActOutput;
  const auto& options = context.attributes<BatchNormActOptions>();
  const auto input = [&](size_t i) { return context.input(i); };
  const auto output = [&](size_t i) { return context.output(i); };
  NormCall call{.view = norm_view(input(In::kX).shape, options.layout),
                .options = norm_options(options),
                .main = {.x = input(In::kX),
                         .weight = input(In::kWeight),
                         .bias = input(In::kBias),
                         .running_mean = input(In::kRunningMean),
                         .running_var = input(In::kRunningVar),
                         .sums = input(In::kSums),
                         .mean = output(Out::kMean),
                         .inv_std = output(Out::kInvStd)},
                .alpha = input(In::kAlpha),
                .y = output(Out::kY)};
  if (options.normalize_addend) {
    call.addend = {.x = input(In::kAddend),
                   .weight = input(In::kAddendWeight),
                   .bias = input(In::kAddendBias),
                   .running_mean = input(In::kAddendRunningMean),
                   .running_var = input(In::kAddendRunningVar),
                   .sums = input(In::kAddendSums),
                   .mean = output(Out::kAddendMean),
                   .inv_std = output(Out::kAddendInvStd)};
  } else {
    call.addend.x = input(In::kAddend);
  }
  if (options.activation != Activation::kNone && options.save_mask) call.mask = output(Out::kMask);
  return call;
}

NormGradProblem batch_norm_act_grad_problem(const KernelQuery& query) {
  using In = NormActGradInput;
  const auto& options = query.attributes<BatchNormActGradOptions>();
  const TensorSpec& x = query.input(In::kX);
  return {
      .view = norm_view(x.shape, options.layout),
      .dtype = x.dtype,
      .device = x.device.index,
      .options = norm_options(options),
      .has_dy2 = query.has_input(In::kDy2),
      .addend_grad = options.addend_grad,
      .aligned = are_aligned(query, {In::kX, In::kDy, In::kDy2, In::kAddend, In::kMean, In::kAddendMean})};
}

NormGradCall batch_norm_act_grad_call(const KernelContext& context) {
  using In = NormActGradInput;
  using Out = NormActGradOutput;
  const auto& options = context.attributes<BatchNormActGradOptions>();
  const auto input = [&](size_t i) { return context.input(i); };
  const auto output = [&](size_t i, bool wanted) { return wanted ? context.output(i) : TensorView{}; };
  const bool parameters = options.parameter_grads;
  NormGradCall call{.view = norm_view(input(In::kX).shape, options.layout),
                    .options = norm_options(options),
                    .main = {.x = input(In::kX),
                             .weight = input(In::kWeight),
                             .bias = input(In::kBias),
                             .mean = input(In::kMean),
                             .inv_std = input(In::kInvStd),
                             .dx = output(Out::kDx, true),
                             .dweight = output(Out::kDweight, parameters),
                             .dbias = output(Out::kDbias, parameters)},
                    .dy = input(In::kDy),
                    .dy2 = input(In::kDy2),
                    .mask = input(In::kMask),
                    .alpha = input(In::kAlpha),
                    .dalpha = output(Out::kDalpha, parameters && options.activation == Activation::kPRelu)};
  if (options.normalize_addend) {
    call.addend = {.x = input(In::kAddend),
                   .weight = input(In::kAddendWeight),
                   .bias = input(In::kAddendBias),
                   .mean = input(In::kAddendMean),
                   .inv_std = input(In::kAddendInvStd),
                   .dx = {},
                   .dweight = output(Out::kDaddendWeight, parameters),
                   .dbias = output(Out::kDaddendBias, parameters)};
  } else {
    call.addend.x = input(In::kAddend);
  }
  call.addend.dx = output(Out::kDaddend, options.addend_grad);
  return call;
}

}  // namespace sinter::ops
