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

/// The problem of a KernelQuery or a KernelContext.
template <class Call>
cuda::CudnnNormProblem forward_problem(const Call& call) {
  const auto& options = call.template attributes<BatchNormActOptions>();
  const Shape& x = call.input(NormActInput::kX).shape;
  const bool adds = call.has_input(NormActInput::kAddend);
  return {x[0], x[1], x[2], x[3], adds, options.epsilon, options.momentum};
}
template <class Call>
cuda::CudnnNormProblem backward_problem(const Call& call) {
  const auto& options = call.template attributes<BatchNormActGradOptions>();
  const Shape& x = call.input(NormActGradInput::kX).shape;
  return {x[0], x[1], x[2], x[3], options.addend_grad, options.epsilon, {}};
}

cuda::CudnnNormBytes bytes_of(const KernelQuery& query, const cuda::CudnnNormProblem& problem) {
  const Device device = query.input(NormActInput::kX).device;
  backend_of(device).make_current(device.index);  // cuDNN's handles belong to a GPU
  return cuda::cudnn_norm_bytes(problem, current_stream(device));
}

/// What both directions read; `main` is a NormTensor or a NormGradTensor.
template <class Main>
cuda::CudnnNormTensors tensors_of(const Main& main, const TensorView& reserve) {
  return {.x = main.x.data,
          .weight = main.weight.template as<float>(),
          .bias = main.bias.template as<float>(),
          .mean = main.mean.template as<float>(),
          .inv_std = main.inv_std.template as<float>(),
          .reserve = reserve.data,
          .reserve_bytes = static_cast<size_t>(reserve.numel())};
}

void run_forward(const KernelContext& context) {
  const NormCall call = batch_norm_call<BatchNormActOptions>(context);
  cuda::CudnnNormTensors tensors = tensors_of(call.main, context.output(NormActOutput::kMask));
  tensors.addend = call.addend.x.data;
  tensors.y = call.y.data;
  if (call.main.running_mean.present) {
    tensors.running_mean = call.main.running_mean.as<float>();
    tensors.running_var = call.main.running_var.as<float>();
  }
  cuda::cudnn_norm_forward(forward_problem(context), tensors, context.stream(), context.workspace(),
                           context.workspace_bytes());
}

void run_backward(const KernelContext& context) {
  const NormGradCall call = batch_norm_act_grad_call(context);
  cuda::CudnnNormTensors tensors = tensors_of(call.main, call.mask);
  tensors.dy = call.dy.data;
  tensors.dx = call.main.dx.data;
  tensors.daddend = call.addend.dx.data;
  tensors.dweight = call.main.dweight.as<float>();
  tensors.dbias = call.main.dbias.as<float>();
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
