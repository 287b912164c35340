// From calls of batch_norm, batch_norm_act and their gradients to what the kernels of ops/norm take.
#include <algorithm>
#include <initializer_list>

#include <sinter/ops/batch_norm/batch_norm_call.h>

namespace sinter::ops {
namespace {

/// Those of the inputs that are there begin at multiples of 16 bytes.
bool are_aligned(const KernelQuery& query, std::initializer_list<size_t> inputs) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](size_t i) { return !query.has_input(i) || query.is_aligned(i, 16); });
}

NormOptions norm_options(const BatchNormActOptions& options, bool given) {
  return {.epsilon = options.epsilon,
          .momentum = options.momentum,
          .training = options.training,
          .activation = options.activation,
          .normalize_addend = options.normalize_addend,
          .statistics_given = given};
}

NormGradOptions norm_options(const BatchNormActGradOptions& options) {
  return {.training = options.training,
          .parameter_grads = options.parameter_grads,
          .activation = options.activation,
          .normalize_addend = options.normalize_addend};
}

}  // namespace

BatchNormActOptions act_options(const BatchNormOptions& options) {
  return {.epsilon = options.epsilon,
          .momentum = options.momentum,
          .training = options.training,
          .layout = options.layout,
          .activation = fused::Activation::kNone};
}

NormGradProblem batch_norm_grad_problem(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormGradOptions>();
  const TensorSpec& x = query.input(0);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .options = {.training = options.training, .parameter_grads = options.parameter_grads},
          .aligned = query.is_aligned(0, 16) && query.is_aligned(1, 16) && query.is_aligned(3, 16)};
}

NormGradCall batch_norm_grad_call(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormGradOptions>();
  NormGradCall call{.view = norm_view(context.input(0).shape, options.layout),
                    .options = {.training = options.training, .parameter_grads = options.parameter_grads},
                    .main = {.x = context.input(0),
                             .weight = context.input(2),
                             .mean = context.input(3),
                             .inv_std = context.input(4),
                             .dx = context.output(0)},
                    .dy = context.input(1)};
  if (options.parameter_grads) {
    call.main.dweight = context.output(1);
    call.main.dbias = context.output(2);
  }
  return call;
}

template <class Options>
NormProblem batch_norm_problem(const KernelQuery& query) {
  using In = NormActInput;
  const BatchNormActOptions options = act_options(query.attributes<Options>());
  const TensorSpec& x = query.input(In::kX);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .options = norm_options(options, query.has_input(In::kMean)),
          .has_sums = query.has_input(In::kSums),
          .has_mask = options.save_mask,
          .aligned = are_aligned(query, {In::kX, In::kAddend})};
}

template <class Options>
NormCall batch_norm_call(const KernelContext& context) {
  using In = NormActInput;
  using Out = NormActOutput;
  const BatchNormActOptions options = act_options(context.attributes<Options>());
  const bool given = context.has_input(In::kMean);
  const auto input = [&](size_t i) { return context.has_input(i) ? context.input(i) : TensorView{}; };
  const auto tensor = [&](size_t x, const NormActPlaces& at) -> NormTensor {
    return {.x = input(x),
            .weight = input(at.weight),
            .bias = input(at.weight + 1),
            .running_mean = input(at.weight + 2),
            .running_var = input(at.weight + 3),
            .sums = input(at.weight + 4),
            .mean = given ? input(at.mean) : context.output(at.mean_output),
            .inv_std = given ? input(at.mean + 1) : context.output(at.mean_output + 1)};
  };
  NormCall call{.view = norm_view(context.input(In::kX).shape, options.layout),
                .options = norm_options(options, given),
                .main = tensor(In::kX, kMainPlaces),
                .alpha = input(In::kAlpha),
                .y = context.output(Out::kY)};
  if (options.normalize_addend) {
    call.addend = tensor(In::kAddend, kAddendPlaces);
  } else {
    call.addend.x = input(In::kAddend);
  }
  if (options.activation != fused::Activation::kNone && options.save_mask)
    call.mask = context.output(Out::kMask);
  return call;
}

template NormProblem batch_norm_problem<BatchNormOptions>(const KernelQuery&);
template NormProblem batch_norm_problem<BatchNormActOptions>(const KernelQuery&);
template NormCall batch_norm_call<BatchNormOptions>(const KernelContext&);
template NormCall batch_norm_call<BatchNormActOptions>(const KernelContext&);

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
  NormGradCall call{
      .view = norm_view(input(In::kX).shape, options.layout),
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
      .dalpha = output(Out::kDalpha, parameters && options.activation == fused::Activation::kPRelu)};
  if (options.normalize_addend) {
    call.addend = {.x = input(In::kAddend),
                   .weight = input(In::kAddendWeight),
                   .bias = input(In::kAddendBias),
                   .mean = input(In::kAddendMean),
                   .inv_std = input(In::kAddendInvStd),
                   .dweight = output(Out::kDaddendWeight, parameters),
                   .dbias = output(Out::kDaddendBias, parameters)};
  } else {
    call.addend.x = input(In::kAddend);
  }
  call.addend.dx = output(Out::kDaddend, options.addend_grad);
  return call;
}

}  // namespace sinter::ops
