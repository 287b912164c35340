// cuDNN's kernels for batch_norm_act and its gradient.
#include <sinter/core/cuda/cudnn/cudnn_batch_norm.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/batch_norm/cudnn_norm.h>

namespace sinter::ops {

void register_cudnn_batch_norm(OpRegistry& registry);

namespace {

bool can_forward(const KernelQuery& query) {
  return !wants_own_kernel<BatchNormActOptions>(query) && !cudnn_norm_constraint(&query, nullptr);
}

bool can_backward(const KernelQuery& query) {
  return !wants_own_kernel<BatchNormActGradOptions>(query) && !cudnn_norm_constraint(nullptr, &query);
}

cuda::CudnnNormProblem problem_of(const Shape& x, double epsilon, bool adds) {
  return {.images = x[0], .height = x[1], .width = x[2], .channels = x[3], .adds = adds, .epsilon = epsilon};
}
/// Of a KernelQuery or a KernelContext.
template <class Call>
cuda::CudnnNormProblem forward_problem(const Call& call) {
  return problem_of(call.input(NormActInput::kX).shape,
                    call.template attributes<BatchNormActOptions>().epsilon,
                    call.has_input(NormActInput::kAddend));
}
template <class Call>
cuda::CudnnNormProblem backward_problem(const Call& call) {
  const auto& options = call.template attributes<BatchNormActGradOptions>();
  return problem_of(call.input(NormActGradInput::kX).shape, options.epsilon, options.addend_grad);
}

cuda::CudnnNormBytes bytes_of(const KernelQuery& query, const cuda::CudnnNormProblem& problem) {
  const Device device = query.input(NormActInput::kX).device;
  backend_of(device).make_current(device.index);  // cuDNN's handles belong to a GPU
  return cuda::cudnn_norm_bytes(problem, current_stream(device));
}

float* pointer_or_null(const TensorView& tensor) {
  return tensor.present ? tensor.as<float>() : nullptr;
}

void run_forward(const KernelContext& context) {
  const NormCall call = batch_norm_act_call(context);
  const TensorView& reserve = context.output(NormActOutput::kMask);
  const cuda::CudnnNormForward tensors{.x = call.main.x.data,
                                       .addend = call.addend.x.data,
                                       .y = call.y.data,
                                       .weight = call.main.weight.as<const float>(),
                                       .bias = call.main.bias.as<const float>(),
                                       .running_mean = pointer_or_null(call.main.running_mean),
                                       .running_var = pointer_or_null(call.main.running_var),
                                       .momentum = call.options.momentum,
                                       .mean = call.main.mean.as<float>(),
                                       .inv_std = call.main.inv_std.as<float>(),
                                       .reserve = reserve.data,
                                       .reserve_bytes = static_cast<size_t>(reserve.numel())};
  cuda::cudnn_norm_forward(forward_problem(context), tensors, context.stream(), context.workspace(),
                           context.workspace_bytes());
}

void run_backward(const KernelContext& context) {
  const NormGradCall call = batch_norm_act_grad_call(context);
  const cuda::CudnnNormBackward tensors{.x = call.main.x.data,
                                        .dy = call.dy.data,
                                        .dx = call.main.dx.data,
                                        .daddend = call.addend.dx.data,
                                        .weight = call.main.weight.as<const float>(),
                                        .bias = call.main.bias.as<const float>(),
                                        .mean = call.main.mean.as<const float>(),
                                        .inv_std = call.main.inv_std.as<const float>(),
                                        .dweight = call.main.dweight.as<float>(),
                                        .dbias = call.main.dbias.as<float>(),
                                        .reserve = call.mask.data,
                                        .reserve_bytes = static_cast<size_t>(call.mask.numel())};
  cuda::cudnn_norm_backward(backward_problem(context), tensors, context.stream(), context.workspace(),
                            context.workspace_bytes());
}

size_t forward_bytes(const KernelQuery& query) {
  return bytes_of(query, forward_problem(query)).forward;
}
size_t backward_bytes(const KernelQuery& query) {
  return bytes_of(query, backward_problem(query)).backward;
}
int64_t reserve_bytes(const KernelQuery& query) {
  return static_cast<int64_t>(bytes_of(query, forward_problem(query)).reserve);
}

}  // namespace

void register_cudnn_batch_norm(OpRegistry& registry) {
  set_cudnn_norm({.version = cuda::cudnn_library_version(), .reserve_bytes = reserve_bytes});
  const auto add = [&](const char* op, auto can_run, auto bytes, auto run) {
    registry.add_kernel(op, {.device = DeviceType::kCuda,
                             .name = "cudnn",
                             .can_run = can_run,
                             .workspace_bytes = bytes,
                             .run = run});
  };
  add("batch_norm_act", can_forward, forward_bytes, run_forward);
  add("batch_norm_act_grad", can_backward, backward_bytes, run_backward);
}

}  // namespace sinter::ops
