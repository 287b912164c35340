// Registers the GPU's convolution kernels: cuDNN's where it has a plan, else Sinter's own.
#include <array>
#include <memory>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
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
std::shared_ptr<const cuda::ConvPlan> plan_of(const KernelQuery& query) {
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

/// `first` and `second` hold the first two inputs.
template <ConvPass pass>
Arrays arrays_of(const KernelContext& context, void* first, void* second) {
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
  const auto [x, weight, y, bias] = arrays_of<pass>(context, context.input(0).data, context.input(1).data);
  if constexpr (pass == ConvPass::kForward) {
    run_conv2d_direct_cuda(context.stream(), geometry, dtype, x, weight, bias, y);
  } else if constexpr (pass == ConvPass::kGradInput) {
    run_conv2d_grad_input_direct_cuda(context.stream(), geometry, dtype, y, weight, x);
  } else {
    run_conv2d_grad_weight_direct_cuda(context.stream(), geometry, dtype, x, y, weight);
  }
}

// ---- views that are not aligned
//
// cuDNN has plans for smaller alignments, but some of them (seen: 9.14, float16) fault all the same. So such
// inputs are copied to the front of the workspace.

size_t bytes_of_copy(const Shape& shape, DType dtype) {
  constexpr size_t kBlock = 256;
  return (static_cast<size_t>(shape.numel()) * size_of(dtype) + kBlock - 1) / kBlock * kBlock;
}

/// Of the two inputs that cuDNN reads.
size_t bytes_of_copies(const KernelQuery& query) {
  size_t bytes = 0;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const TensorSpec& input = query.input(i);
    if (!query.is_aligned(i, cuda::kConvAlignment)) bytes += bytes_of_copy(input.shape, input.dtype);
  }
  return bytes;
}

/// A call's two inputs, aligned, and the workspace that is left.
struct AlignedInputs {
  std::array<void*, 2> data{};
  std::byte* workspace;
  size_t workspace_bytes;
  bool have_room = true;

  explicit AlignedInputs(const KernelContext& context)
      : workspace(context.workspace<std::byte>()), workspace_bytes(context.workspace_bytes()) {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const TensorView& input = context.input(i);
      data[i] = input.data;
      if (reinterpret_cast<uintptr_t>(input.data) % cuda::kConvAlignment == 0) continue;
      const size_t room = bytes_of_copy(input.shape, input.dtype);
      have_room = have_room && room <= workspace_bytes;
      if (!have_room) return;
      data[i] = workspace;
      workspace += room;
      workspace_bytes -= room;
      SINTER_CUDA_CHECK(
          cudaMemcpyAsync(data[i], input.data, static_cast<size_t>(input.numel()) * size_of(input.dtype),
                          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(context.stream().native)));
    }
  }
};

// ---- through cuDNN

/// A plan that needs no more scratch than there is; null if there is none.
std::shared_ptr<const cuda::ConvPlan> plan_within(ConvProblem problem, size_t workspace_bytes) {
  auto plan = cuda::find_conv_plan(problem);
  if (plan == nullptr || plan->workspace_bytes() <= workspace_bytes) return plan;
  problem.workspace_limit = workspace_bytes;
  return cuda::find_conv_plan(problem);
}

template <ConvPass pass>
void run_cudnn(const KernelContext& context) {
  const AlignedInputs inputs(context);
  if (!inputs.have_room) return run_direct<pass>(context);
  const Conv2dGeometry geometry = geometry_of<pass>(context);
  const DType dtype = context.input(0).dtype;
  const auto plan =
      plan_within(problem_of(geometry, pass, dtype, context.stream().device), inputs.workspace_bytes);
  if (plan == nullptr) return run_direct<pass>(context);
  const auto [x, weight, y, bias] = arrays_of<pass>(context, inputs.data[0], inputs.data[1]);
  plan->run(context.stream(), x, weight, y, inputs.workspace);
  if (bias == nullptr) return;
  const bool channels_last = geometry.layout == Layout::kNHWC;
  add_bias_cuda(context.stream(), dtype, y, bias,
                geometry.batch * (channels_last ? geometry.out_pixels() : 1), geometry.out_channels,
                channels_last ? 1 : geometry.out_pixels());
}

template <ConvPass pass>
size_t cudnn_workspace(const KernelQuery& query) {
  const auto plan = plan_of<pass>(query);
  return (plan != nullptr ? plan->workspace_bytes() : 0) + bytes_of_copies(query);
}

template <ConvPass pass>
void add_kernels(OpRegistry& registry, const char* op) {
  registry.add_kernel(op, {.device = DeviceType::kCuda, .name = "direct", .run = run_direct<pass>});
  registry.add_kernel(op,
                      {.device = DeviceType::kCuda,
                       .name = "cudnn",
                       .priority = 1,
                       .can_run = [](const KernelQuery& query) { return plan_of<pass>(query) != nullptr; },
                       .workspace_bytes = cudnn_workspace<pass>,
                       .least_workspace_bytes = [](const KernelQuery&) { return size_t{0}; },
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
