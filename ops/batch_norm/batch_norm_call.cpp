// From a call of batch_norm, or of its gradient, to what the kernels of ops/norm take.
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>

namespace sinter::ops {

NormProblem batch_norm_problem(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormOptions>();
  const TensorSpec& x = query.input(0);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .options = {.training = options.training},
          .aligned = query.is_aligned(0, 16)};
}

NormCall batch_norm_call(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormOptions>();
  return {.view = norm_view(context.input(0).shape, options.layout),
          .options = {.epsilon = options.epsilon, .momentum = options.momentum, .training = options.training},
          .main = {.x = context.input(0),
                   .weight = context.input(1),
                   .bias = context.input(2),
                   .running_mean = context.input(3),
                   .running_var = context.input(4),
                   .sums = {},
                   .mean = context.output(1),
                   .inv_std = context.output(2)},
          .y = context.output(0)};
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
                             .bias = {},
                             .mean = context.input(3),
                             .inv_std = context.input(4),
                             .dx = context.output(0),
                             .dweight = {},
                             .dbias = {}},
                    .dy = context.input(1)};
  if (options.parameter_grads) {
    call.main.dweight = context.output(1);
    call.main.dbias = context.output(2);
  }
  return call;
}

}  // namespace sinter::ops
