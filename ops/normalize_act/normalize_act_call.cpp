// From a call of normalize_act to what the kernels of ops/norm take.
#include <sinter/ops/normalize_act/normalize_act.h>
#include <sinter/ops/normalize_act/normalize_act_call.h>

namespace sinter::ops {
namespace {

NormOptions norm_options(const NormalizeActOptions& options) {
  return {.activation = options.activation,
          .normalize_addend = options.normalize_addend,
          .statistics_given = true};
}

}  // namespace

NormProblem normalize_act_problem(const KernelQuery& query) {
  using In = NormalizeActInput;
  const auto& options = query.attributes<NormalizeActOptions>();
  const TensorSpec& x = query.input(In::kX);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .options = norm_options(options),
          .has_mask = false};
}

NormCall normalize_act_call(const KernelContext& context) {
  using In = NormalizeActInput;
  const auto& options = context.attributes<NormalizeActOptions>();
  const auto tensor = [&](size_t x, size_t weight, size_t bias, size_t mean, size_t inv_std) {
    NormTensor result;
    result.x = context.input(x);
    result.weight = context.input(weight);
    result.bias = context.input(bias);
    result.mean = context.input(mean);
    result.inv_std = context.input(inv_std);
    return result;
  };
  NormCall call;
  call.view = norm_view(context.input(In::kX).shape, options.layout);
  call.options = norm_options(options);
  call.main = tensor(In::kX, In::kWeight, In::kBias, In::kMean, In::kInvStd);
  if (options.normalize_addend) {
    call.addend = tensor(In::kAddend, In::kAddendWeight, In::kAddendBias, In::kAddendMean, In::kAddendInvStd);
  } else {
    call.addend.x = context.input(In::kAddend);
  }
  call.alpha = context.input(In::kAlpha);
  call.y = context.output(0);
  return call;
}

}  // namespace sinter::ops
