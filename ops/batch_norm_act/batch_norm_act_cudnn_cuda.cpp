// cuDNN's kernels for the fused ops.
#include <sinter/core/cuda/cudnn/cudnn_batch_norm.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_act/cudnn_norm_constraint.h>

namespace sinter::ops {

void register_cudnn_batch_norm(OpRegistry& registry);

namespace {

bool can_forward(const KernelQuery& query) {
  return query.attributes<BatchNormActOptions>().backend == NormBackend::kCudnn &&
         !cudnn_norm_constraint(cudnn_norm_forward_case(query));
}

bool can_backward(const KernelQuery& query) {
  return query.attributes<BatchNormActGradOptions>().backend == NormBackend::kCudnn &&
         !cudnn_norm_constraint(cudnn_norm_backward_case(query));
}

cuda::CudnnNormProblem problem_of(const Shape& x, double epsilon, Activation activation, bool adds) {
  return {.images = x[0],
          .height = x[1],
          .width = x[2],
          .channels = x[3],
          .adds = adds,
          .relu = activation == Activation::kRelu,
          .epsilon = epsilon};
}

template <class T>
T* pointer_or_null(const TensorView& tensor) {
  return tensor.present ? tensor.as<T>() : nullptr;
}

void run_forward(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormActOptions>();
  const NormCall call = batch_norm_act_call(context);
  const TensorView& reserve = context.output(NormActOutput::kMask);
  const cuda::CudnnNormForward tensors{.x = call.main.x.data,
                                       .addend = call.addend.x.data,
                                       .y = call.y.data,
                                       .weight = call.main.weight.as<const float>(),
                                       .bias = call.main.bias.as<const float>(),
                                       .running_mean = pointer_or_null<float>(call.main.running_mean),
                                       .running_var = pointer_or_null<float>(call.main.running_var),
                                       .momentum = options.momentum,
                                       .mean = call.main.mean.as<float>(),
                                       .inv_std = call.main.inv_std.as<float>(),
                                       .reserve = reserve.data,
                                       .reserve_bytes = static_cast<size_t>(reserve.numel())};
  cuda::cudnn_norm_forward(
      problem_of(call.main.x.shape, options.epsilon, options.activation, call.addend.x.present), tensors,
      context.stream(), context.workspace(), context.workspace_bytes());
}

void run_backward(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormActGradOptions>();
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
  cuda::cudnn_norm_backward(
      problem_of(call.main.x.shape, options.epsilon, options.activation, options.addend_grad), tensors,
      context.stream(), context.workspace(), context.workspace_bytes());
}

std::shared_ptr<const Prepared> prepare_forward(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormActOptions>();
  const TensorSpec& x = query.input(NormActInput::kX);
  const Stream stream = current_stream(x.device);
  const cuda::CudnnNormProblem problem =
      problem_of(x.shape, options.epsilon, options.activation, query.has_input(NormActInput::kAddend));
  return std::make_shared<const CudnnNorm>(
      cuda::cudnn_norm_forward_bytes(problem, stream),
      static_cast<int64_t>(cuda::cudnn_norm_reserve_bytes(problem, stream)));
}

size_t backward_bytes(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormActGradOptions>();
  const TensorSpec& x = query.input(NormActGradInput::kX);
  return cuda::cudnn_norm_backward_bytes(
      problem_of(x.shape, options.epsilon, options.activation, options.addend_grad),
      current_stream(x.device));
}

}  // namespace

void register_cudnn_batch_norm(OpRegistry& registry) {
  set_cudnn_norm_version(cuda::cudnn_library_version());
  registry.add_kernel("batch_norm_act", {.device = DeviceType::kCuda,
                                         .name = "cudnn",
                                         .can_run = can_forward,
                                         .prepare = prepare_forward,
                                         .run = run_forward});
  registry.add_kernel("batch_norm_act_grad", {.device = DeviceType::kCuda,
                                              .name = "cudnn",
                                              .can_run = can_backward,
                                              .workspace_bytes = backward_bytes,
                                              .run = run_backward});
}

}  // namespace sinter::ops
