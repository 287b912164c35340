// Registers the GPU's convolution kernels: cuDNN's where it has a plan, else Sinter's own.
#include <sinter/core/cuda/cudnn_conv_plan.h>
#include <sinter/ops/common/add_bias_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>

namespace sinter::ops {
namespace {

using cuda::ConvPass;
using cuda::ConvProblem;

/// The geometry of a call of the op that computes `pass`; Call is KernelQuery or KernelContext.
template <ConvPass pass, class Call>
Conv2dGeometry geometry_of(const Call& call) {
  if constexpr (pass == ConvPass::kForward) {
    const auto& options = call.template attributes<Conv2dOptions>();
    return conv2d_geometry("conv2d", call.input(0).shape, call.input(1).shape, options);
  } else if constexpr (pass == ConvPass::kGradInput) {
    const auto& options = call.template attributes<Conv2dGradInputAttributes>();
    return conv2d_geometry("conv2d_grad_input", call.output(0).shape, call.input(1).shape, options);
  } else {
    const auto& options = call.template attributes<Conv2dGradWeightAttributes>();
    return conv2d_geometry("conv2d_grad_weight", call.input(0).shape, call.output(0).shape, options);
  }
}

ConvProblem problem_of(const Conv2dGeometry& g, ConvPass pass, DType dtype, Device device) {
  return {.device = device.index,
          .pass = pass,
          .dtype = dtype,
          .layout = g.layout,
          .x = {g.batch, g.in_channels, g.height.input, g.width.input},
          .weight = {g.out_channels, g.group_in(), g.height.kernel, g.width.kernel},
          .y = {g.batch, g.out_channels, g.height.output, g.width.output},
          .stride = {g.height.stride, g.width.stride},
          .padding = {g.height.padding, g.width.padding},
          .dilation = {g.height.dilation, g.width.dilation}};
}

/// Nothing is asked of cuDNN about empty images, which it does not know, and float64.
bool is_for_cudnn(const Conv2dGeometry& geometry, DType dtype) {
  return dtype != DType::kFloat64 && geometry.batch > 0 && geometry.in_pixels() > 0 &&
         geometry.out_pixels() > 0;
}

template <ConvPass pass>
const cuda::ConvPlan* plan_of(const KernelQuery& query) {
  const Conv2dGeometry geometry = geometry_of<pass>(query);
  const TensorSpec& input = query.input(0);
  if (!is_for_cudnn(geometry, input.dtype)) return nullptr;
  return cuda::find_conv_plan(problem_of(geometry, pass, input.dtype, input.device));
}

/// The arrays of a call by their roles.
struct Arrays {
  void *x, *weight, *y;
  const void* bias;
};

template <ConvPass pass>
Arrays arrays_of(const KernelContext& context) {
  void* const first = context.input(0).data;
  void* const second = context.input(1).data;
  void* const output = context.output(0).data;
  switch (pass) {
    case ConvPass::kForward:
      return {first, second, output, context.has_input(2) ? context.input(2).data : nullptr};
    case ConvPass::kGradInput:
      return {output, second, first, nullptr};
    case ConvPass::kGradWeight:
      return {first, output, second, nullptr};
  }
}

template <ConvPass pass>
void run_direct(const KernelContext& context) {
  const Conv2dGeometry geometry = geometry_of<pass>(context);
  const DType dtype = context.input(0).dtype;
  const auto [x, weight, y, bias] = arrays_of<pass>(context);
  if constexpr (pass == ConvPass::kForward) {
    run_conv2d_direct_cuda(context.stream(), geometry, dtype, x, weight, bias, y);
  } else if constexpr (pass == ConvPass::kGradInput) {
    run_conv2d_grad_input_direct_cuda(context.stream(), geometry, dtype, y, weight, x);
  } else {
    run_conv2d_grad_weight_direct_cuda(context.stream(), geometry, dtype, x, y, weight);
  }
}

template <ConvPass pass>
void run_cudnn(const KernelContext& context) {
  const Conv2dGeometry geometry = geometry_of<pass>(context);
  const DType dtype = context.input(0).dtype;
  const auto [x, weight, y, bias] = arrays_of<pass>(context);
  // A view may lie anywhere. cuDNN has plans for smaller alignments, but some of them (seen: 9.14, float16)
  // fault all the same.
  const auto aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % cuda::kConvAlignment == 0;
  };
  if (!aligned(x) || !aligned(weight) || !aligned(y)) return run_direct<pass>(context);
  ConvProblem problem = problem_of(geometry, pass, dtype, context.stream().device);
  const cuda::ConvPlan* plan = cuda::find_conv_plan(problem);
  if (plan != nullptr && plan->workspace_bytes() > context.workspace_bytes()) {
    // There was no room for so much: a plan that needs no more than there is.
    problem.workspace_limit = context.workspace_bytes();
    plan = cuda::find_conv_plan(problem);
  }
  if (plan == nullptr) return run_direct<pass>(context);
  plan->run(context.stream(), x, weight, y, context.workspace());
  if (bias == nullptr) return;
  const bool channels_last = geometry.layout == Layout::kNHWC;
  add_bias_cuda(context.stream(), dtype, y, bias,
                geometry.batch * (channels_last ? geometry.out_pixels() : 1), geometry.out_channels,
                channels_last ? 1 : geometry.out_pixels());
}

template <ConvPass pass>
void add_kernels(OpRegistry& registry, const char* op) {
  registry.add_kernel(op, {.device = DeviceType::kCuda, .name = "direct", .run = run_direct<pass>});
  registry.add_kernel(
      op,
      {.device = DeviceType::kCuda,
       .name = "cudnn",
       .priority = 1,
       .can_run = [](const KernelQuery& query) { return plan_of<pass>(query) != nullptr; },
       .workspace_bytes = [](const KernelQuery& query) { return plan_of<pass>(query)->workspace_bytes(); },
       .takes_less_workspace = true,
       .run = run_cudnn<pass>});
}

}  // namespace

void register_conv2d_cuda(OpRegistry& registry);
void register_conv2d_cuda(OpRegistry& registry) {
  add_kernels<ConvPass::kForward>(registry, "conv2d");
  add_kernels<ConvPass::kGradInput>(registry, "conv2d_grad_input");
  add_kernels<ConvPass::kGradWeight>(registry, "conv2d_grad_weight");
}

}  // namespace sinter::ops
