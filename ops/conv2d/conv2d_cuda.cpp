// Registers the GPU's convolution kernels: cuDNN's where it has a plan, else Sinter's own.
#include <array>
#include <memory>
#include <utility>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>
#include <sinter/core/cuda/cudnn/depthwise_conv_plan.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>

namespace sinter::ops {
namespace {

using cuda::ConvPass;
using cuda::ConvProblem;

/// What a call does besides the convolution, and who does it: cuDNN's plan while it writes the result, or a
/// pass over that.
enum class Tail {
  kNone,
  kSumsByPlan,
  kSumsByPass,
  kActByPlan,  ///< addend, bias and activation
  kActByPass,
};

constexpr bool is_act(Tail tail) {
  return tail == Tail::kActByPlan || tail == Tail::kActByPass;
}

/// The geometry of a call of the op that computes `pass`; Call is KernelQuery or KernelContext.
template <ConvPass pass, Tail tail, class Call>
Conv2dGeometry geometry_of(const Call& call) {
  if constexpr (is_act(tail)) {
    const auto& options = call.template attributes<Conv2dActOptions>();
    return conv2d_geometry("conv2d_bias_act", call.input(0).shape, call.input(1).shape, options);
  } else if constexpr (pass == ConvPass::kForward) {
    const auto& options = call.template attributes<Conv2dAttributes>();
    return conv2d_geometry("conv2d", call.input(0).shape, call.input(1).shape, options);
  } else if constexpr (pass == ConvPass::kGradInput) {
    const auto& options = call.template attributes<Conv2dGradInputAttributes>();
    return conv2d_geometry("conv2d_grad_input", call.output(0).shape, call.input(1).shape, options);
  } else {
    const auto& options = call.template attributes<Conv2dGradWeightAttributes>();
    return conv2d_geometry("conv2d_grad_weight", call.input(0).shape, call.output(0).shape, options);
  }
}

/// A dilation of one tap has no effect; without it the problem has one form only.
int64_t dilation_of(const Conv2dAxis& axis) {
  return axis.kernel == 1 ? 1 : axis.dilation;
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
          .dilation = {dilation_of(g.height), dilation_of(g.width)}};
}

/// Nothing is asked of cuDNN about empty images, which it does not know, and float64.
bool is_for_cudnn(const Conv2dGeometry& geometry, DType dtype) {
  return dtype != DType::kFloat64 && geometry.batch > 0 && geometry.in_pixels() > 0 &&
         geometry.out_pixels() > 0;
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

/// Whether conv2d_bias_act adds the same to each of several images; Call is KernelQuery or KernelContext.
template <class Call>
bool has_one_addend(const Call& call) {
  return call.has_input(3) && call.input(3).shape[0] != call.output(0).shape[0];
}

/// What conv2d_bias_act does behind the convolution.
BiasAct bias_act_of(const KernelContext& context) {
  const auto pointer = [&](size_t i) -> const void* {
    return context.has_input(i) ? context.input(i).data : nullptr;
  };
  BiasAct made{.bias = pointer(2),
               .addend = pointer(3),
               .slope = pointer(4),
               .activation = context.attributes<Conv2dActOptions>().activation};
  made.one_addend = has_one_addend(context);
  if (context.has_input(4)) made.slope_dtype = context.input(4).dtype;
  return made;
}

/// What is left of it to do, in a pass over the result.
void do_rest(const KernelContext& context, const Conv2dGeometry& geometry, const BiasAct& rest) {
  if (rest.bias == nullptr && rest.addend == nullptr && rest.activation == fused::Activation::kNone) return;
  const TensorView& y = context.output(0);
  run_bias_act_cuda(context.stream(), geometry, y.dtype, y.data, rest);
}

template <ConvPass pass, Tail tail>
void run_direct(const KernelContext& context) {
  const Conv2dGeometry geometry = geometry_of<pass, tail>(context);
  const DType dtype = context.input(0).dtype;
  const auto [x, weight, y, bias] = arrays_of<pass>(context, context.input(0).data, context.input(1).data);
  if constexpr (pass == ConvPass::kForward) {
    run_conv2d_direct_cuda(context.stream(), geometry, dtype, x, weight, bias, y);
    if constexpr (tail == Tail::kActByPass) {
      BiasAct rest = bias_act_of(context);
      rest.bias = nullptr;  // is added
      do_rest(context, geometry, rest);
    }
    if constexpr (tail == Tail::kSumsByPass) {
      run_channel_sums_cuda(context.stream(), geometry, dtype, y, context.output(1).data,
                            context.workspace());
    }
  } else if constexpr (pass == ConvPass::kGradInput) {
    run_conv2d_grad_input_direct_cuda(context.stream(), geometry, dtype, y, weight, x);
  } else {
    run_conv2d_grad_weight_direct_cuda(context.stream(), geometry, dtype, x, y, weight);
  }
}

size_t direct_sums_workspace(const KernelQuery& query) {
  const TensorSpec& y = query.output(0);
  return channel_sums_workspace_cuda(geometry_of<ConvPass::kForward, Tail::kSumsByPass>(query), y.dtype,
                                     y.device);
}

// ---- through cuDNN
//
// Views may not be aligned. cuDNN has plans for smaller alignments, but some of them (seen: 9.14, float16)
// fault all the same. So such inputs are copied to the front of the workspace.

/// The plan of a convolution, and where its inputs are copied to.
struct PreparedConv final : Prepared {
  Conv2dGeometry geometry;
  std::array<size_t, 2> copy_bytes{};  // rooms in the workspace; 0 for an input that is aligned
  size_t sum_bytes = 0;                // likewise, for a pass of sums
  std::shared_ptr<const cuda::ConvPlan> plan;

  size_t workspace_bytes() const override {
    return plan->workspace_bytes() + copy_bytes[0] + copy_bytes[1] + sum_bytes;
  }
  std::string detail() const override { return plan->name(); }
};

size_t bytes_of_copy(const TensorSpec& spec) {
  constexpr size_t kBlock = 256;
  return (spec.bytes() + kBlock - 1) / kBlock * kBlock;
}

cuda::ConvEpilogue epilogue_of(const KernelQuery& query) {
  using cuda::ConvActivation;
  cuda::ConvEpilogue epilogue{.bias = query.has_input(2), .addend = query.has_input(3)};
  switch (query.attributes<Conv2dActOptions>().activation) {
    case fused::Activation::kNone:
      break;
    case fused::Activation::kRelu:
      epilogue.activation = ConvActivation::kRelu;
      break;
    case fused::Activation::kPRelu:
      epilogue.activation = ConvActivation::kPRelu;
      epilogue.slope_dtype = query.input(4).dtype;
  }
  return epilogue;
}

/// Null if cuDNN has no plan within the limit of the workspace: then Sinter's own kernel runs.
template <ConvPass pass, Tail tail>
std::shared_ptr<const Prepared> prepare_cudnn(const KernelQuery& query) {
  auto prepared = std::make_shared<PreparedConv>();
  prepared->geometry = geometry_of<pass, tail>(query);
  const TensorSpec& input = query.input(0);
  if (!is_for_cudnn(prepared->geometry, input.dtype)) return nullptr;
  ConvProblem problem = problem_of(prepared->geometry, pass, input.dtype, input.device);
  if constexpr (tail == Tail::kSumsByPlan) {
    // A bias is added afterwards; both rows of sums must be aligned. Sinter's own plan and a pass over its
    // result are many times as fast as what cuDNN sums.
    if (query.has_input(2) || prepared->geometry.out_channels % 4 != 0 || cuda::is_depthwise_conv(problem)) {
      return nullptr;
    }
    problem.sums = true;
  }
  if constexpr (tail == Tail::kActByPlan) {
    // Plans that repeat an addend fault (seen: 9.14, float16, NHWC: misaligned addresses).
    if (has_one_addend(query)) return nullptr;
    problem.epilogue = epilogue_of(query);
    if (!problem.epilogue.is_there()) return nullptr;
    for (const size_t i : {size_t{2}, size_t{3}, size_t{4}}) {
      if (query.has_input(i) && !query.is_aligned(i, cuda::kConvAlignment)) return nullptr;
    }
  }
  size_t room = query.workspace_limit();
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (query.is_aligned(i, cuda::kConvAlignment)) continue;
    prepared->copy_bytes[i] = bytes_of_copy(query.input(i));
    if (prepared->copy_bytes[i] > room) return nullptr;
    room -= prepared->copy_bytes[i];
  }
  if constexpr (tail == Tail::kSumsByPass) {
    prepared->sum_bytes = channel_sums_workspace_cuda(prepared->geometry, input.dtype, input.device);
    if (prepared->sum_bytes > room) return nullptr;
    room -= prepared->sum_bytes;
  }
  prepared->plan = cuda::find_conv_plan(problem);
  if (prepared->plan != nullptr && prepared->plan->workspace_bytes() > room) {
    problem.workspace_limit = room;
    prepared->plan = cuda::find_conv_plan(problem);
  }
  if (prepared->plan == nullptr) return nullptr;
  return prepared;
}

template <ConvPass pass, Tail tail>
void run_cudnn(const KernelContext& context) {
  const auto& [geometry, copy_bytes, sum_bytes, plan] = context.prepared<PreparedConv>();
  const Stream& stream = context.stream();
  auto* workspace = context.workspace<std::byte>();
  std::array<void*, 2> inputs{};
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const TensorView& input = context.input(i);
    inputs[i] = input.data;
    if (copy_bytes[i] == 0) continue;
    inputs[i] = workspace;
    workspace += copy_bytes[i];
    SINTER_CUDA_CHECK(cudaMemcpyAsync(inputs[i], input.data,
                                      static_cast<size_t>(input.numel()) * size_of(input.dtype),
                                      cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream.native)));
  }
  const auto [x, weight, y, bias] = arrays_of<pass>(context, inputs[0], inputs[1]);
  cuda::ConvArrays plan_arrays{.x = x, .weight = weight, .y = y};
  BiasAct rest{.bias = bias};
  if constexpr (is_act(tail)) rest = bias_act_of(context);
  if constexpr (tail == Tail::kSumsByPlan) plan_arrays.sums = context.output(1).as<float>();
  if constexpr (tail == Tail::kActByPlan) {
    plan_arrays.bias = rest.bias;
    plan_arrays.addend = rest.addend;
    plan_arrays.slope = rest.slope;
    rest = {};
  }
  plan->run(stream, plan_arrays, workspace + sum_bytes);
  do_rest(context, geometry, rest);
  if constexpr (tail == Tail::kSumsByPass) {
    run_channel_sums_cuda(stream, geometry, context.input(0).dtype, y, context.output(1).data, workspace);
  }
}

template <ConvPass pass, Tail tail>
Kernel cudnn_kernel(const char* name) {
  return {.device = DeviceType::kCuda,
          .name = name,
          .prepare = prepare_cudnn<pass, tail>,
          .run = run_cudnn<pass, tail>};
}

template <ConvPass pass>
void add_kernels(OpRegistry& registry, const char* op) {
  registry.add_kernel(op,
                      {.device = DeviceType::kCuda, .name = "direct", .run = run_direct<pass, Tail::kNone>});
  registry.add_kernel(op, cudnn_kernel<pass, Tail::kNone>("cudnn"));
}

/// "cudnn" is the one that sums while it convolves; passes ask by this name.
void add_kernels_with_sums(OpRegistry& registry) {
  constexpr ConvPass pass = ConvPass::kForward;
  registry.add_kernel("conv2d_sums", {.device = DeviceType::kCuda,
                                      .name = "direct",
                                      .workspace_bytes = direct_sums_workspace,
                                      .run = run_direct<pass, Tail::kSumsByPass>});
  registry.add_kernel("conv2d_sums", cudnn_kernel<pass, Tail::kSumsByPass>("cudnn_then_sums"));
  registry.add_kernel("conv2d_sums", cudnn_kernel<pass, Tail::kSumsByPlan>("cudnn"));
}

/// A rank, not a time: which of cuDNN's two ways is taken is measured (choose_by_time), and the direct kernel
/// is so slow that it is not even timed beside them.
template <int rank>
double ranked(const KernelQuery&, const Prepared*) {
  return rank;
}

void add_kernels_with_act(OpRegistry& registry) {
  constexpr ConvPass pass = ConvPass::kForward;
  const auto add = [&](Kernel kernel, double (*microseconds)(const KernelQuery&, const Prepared*)) {
    kernel.microseconds = microseconds;
    registry.add_kernel("conv2d_bias_act", std::move(kernel));
  };
  add({.device = DeviceType::kCuda, .name = "direct", .run = run_direct<pass, Tail::kActByPass>},
      ranked<1000>);
  add(cudnn_kernel<pass, Tail::kActByPass>("cudnn_then_act"), ranked<3>);
  add(cudnn_kernel<pass, Tail::kActByPlan>("cudnn"), ranked<2>);
}

}  // namespace

void register_conv2d_cuda(OpRegistry& registry);
void register_conv2d_cuda(OpRegistry& registry) {
  add_kernels<ConvPass::kForward>(registry, "conv2d");
  add_kernels_with_sums(registry);
  add_kernels_with_act(registry);
  add_kernels<ConvPass::kGradInput>(registry, "conv2d_grad_input");
  add_kernels<ConvPass::kGradWeight>(registry, "conv2d_grad_weight");
}

}  // namespace sinter::ops
