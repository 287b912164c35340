// cuDNN's kernels for the fused ops, and when they can run.
#include <sinter/core/cuda/cudnn_batch_norm.h>
#include <sinter/ops/batch_norm/norm_call.h>

namespace sinter::ops {

void register_cudnn_batch_norm(OpRegistry& registry);

namespace {

/// What both directions need: cuDNN's fused kernels are for float16, NHWC and channels in fours, and count in
/// 32 bits.
template <class Options>
bool fits_cudnn(const TensorSpec& x, const Options& options, bool adds) {
  return options.backend == NormBackend::kCudnn && x.device.type == DeviceType::kCuda &&
         x.dtype == DType::kFloat16 && options.layout == Layout::kNHWC && x.shape.rank() == 4 &&
         x.shape[3] % 4 == 0 && x.shape.numel() > 0 && x.shape.numel() <= INT32_MAX && options.training &&
         options.activation != Activation::kPRelu && !options.normalize_addend &&
         (!adds || options.activation == Activation::kRelu);
}

bool can_forward(const KernelQuery& query) {
  using In = NormActInput;
  const auto& options = query.attributes<BatchNormActOptions>();
  return fits_cudnn(query.input(In::kX), options, query.has_input(In::kAddend)) &&
         query.has_input(In::kWeight) && query.has_input(In::kBias) && !query.has_input(In::kSums);
}

bool can_backward(const KernelQuery& query) {
  using In = NormActGradInput;
  const auto& options = query.attributes<BatchNormActGradOptions>();
  return fits_cudnn(query.input(In::kX), options, options.addend_grad) && options.parameter_grads &&
         query.has_input(In::kWeight) && query.has_input(In::kBias) && !query.has_input(In::kDy2);
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

int64_t reserve_bytes(const TensorSpec& x, const BatchNormActOptions& options, bool adds) {
  if (!fits_cudnn(x, options, adds)) return 0;
  return static_cast<int64_t>(cuda::cudnn_norm_reserve_bytes(
      problem_of(x.shape, options.epsilon, options.activation, adds), current_stream(x.device)));
}

void expect_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    SINTER_CHECK(reinterpret_cast<uintptr_t>(pointer) % 16 == 0,
                 "[batch_norm_act] expected tensors aligned to 16 bytes for cudnn but got one at {}",
                 pointer);
  }
}

template <class T>
T* pointer_or_null(const TensorView& tensor) {
  return tensor.present ? tensor.as<T>() : nullptr;
}

void run_forward(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormActOptions>();
  const NormCall call(context, options);
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
                                       .reserve = reserve.data};
  expect_aligned({tensors.x, tensors.addend, tensors.y});
  cuda::cudnn_norm_forward(
      problem_of(call.main.x.shape, options.epsilon, options.activation, call.addend.x.present), tensors,
      context.stream(), context.workspace(), context.workspace_bytes());
}

void run_backward(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormActGradOptions>();
  const NormGradCall call(context, options);
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
                                        .reserve = call.mask.data};
  expect_aligned({tensors.x, tensors.dy, tensors.dx, tensors.daddend});
  cuda::cudnn_norm_backward(
      problem_of(call.main.x.shape, options.epsilon, options.activation, options.addend_grad), tensors,
      context.stream(), context.workspace(), context.workspace_bytes());
}

size_t forward_bytes(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormActOptions>();
  const TensorSpec& x = query.input(NormActInput::kX);
  return cuda::cudnn_norm_forward_bytes(
      problem_of(x.shape, options.epsilon, options.activation, query.has_input(NormActInput::kAddend)),
      current_stream(x.device));
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
  set_cudnn_norm_reserve(reserve_bytes);
  registry.add_kernel("batch_norm_act", {.device = DeviceType::kCuda,
                                         .name = "cudnn",
                                         .can_run = can_forward,
                                         .workspace_bytes = forward_bytes,
                                         .run = run_forward});
  registry.add_kernel("batch_norm_act_grad", {.device = DeviceType::kCuda,
                                              .name = "cudnn",
                                              .can_run = can_backward,
                                              .workspace_bytes = backward_bytes,
                                              .run = run_backward});
}

}  // namespace sinter::ops
