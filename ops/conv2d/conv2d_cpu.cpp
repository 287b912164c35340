// Registers the CPU's convolution kernels.
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>

namespace sinter::ops {
namespace {

/// The geometry of a call of the op that computes `pass`; Call is KernelQuery or KernelContext.
template <Conv2dPass pass, class Call>
Conv2dGeometry geometry_of(const Call& call) {
  if constexpr (pass == Conv2dPass::kForward) {
    const auto& options = call.template attributes<Conv2dOptions>();
    return conv2d_geometry("conv2d", call.input(0).shape, call.input(1).shape, options);
  } else if constexpr (pass == Conv2dPass::kGradInput) {
    const auto& options = call.template attributes<Conv2dGradInputAttributes>();
    return conv2d_geometry("conv2d_grad_input", call.output(0).shape, call.input(1).shape, options);
  } else {
    const auto& options = call.template attributes<Conv2dGradWeightAttributes>();
    return conv2d_geometry("conv2d_grad_weight", call.input(0).shape, call.output(0).shape, options);
  }
}

/// Sums up what conv2d_sums has computed.
void sum_channels(const KernelContext& context, const Conv2dGeometry& geometry) {
  const bool channels_last = geometry.layout == Layout::kNHWC;
  const int64_t inner = channels_last ? 1 : geometry.out_pixels(), channels = geometry.out_channels;
  dispatch_float(context.output(0).dtype, "conv2d_sums", [&]<class T> {
    using C = compute_type<T>;
    const T* const y = context.output(0).as<const T>();
    C* const sums = context.output(1).as<C>();
    parallel_for(channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = c * inner; i < context.output(0).numel(); i += channels * inner) {
          for (int64_t j = i; j < i + inner; ++j) {
            const auto value = static_cast<double>(static_cast<C>(y[j]));
            sum += value;
            squares += value * value;
          }
        }
        sums[c] = static_cast<C>(sum);
        sums[channels + c] = static_cast<C>(squares);
      }
    });
  });
}

template <Conv2dPass pass, bool sums = false>
void add_kernels(OpRegistry& registry, const char* op) {
  registry.add_kernel(
      op, {.device = DeviceType::kCpu,
           .name = "im2col",
           .can_run = [](const KernelQuery& query) { return conv2d_im2col_can_run(query.input(0).dtype); },
           .workspace_bytes =
               [](const KernelQuery& query) {
                 return conv2d_im2col_workspace(geometry_of<pass>(query), pass, query.input(0).dtype,
                                                query.threads());
               },
           .run =
               [](const KernelContext& context) {
                 run_conv2d_im2col(context, geometry_of<pass>(context), pass);
                 if constexpr (sums) sum_channels(context, geometry_of<pass>(context));
               }});
  registry.add_kernel(
      op,
      {.device = DeviceType::kCpu,
       .name = "direct",
       .can_run = [](const KernelQuery& query) { return conv2d_direct_can_run(geometry_of<pass>(query)); },
       .microseconds =
           [](const KernelQuery& query, const Prepared*) {
             return best_if(conv2d_direct_pays(geometry_of<pass>(query), pass, query.input(0).dtype));
           },
       .workspace_bytes =
           [](const KernelQuery& query) {
             return conv2d_direct_workspace(geometry_of<pass>(query), pass, query.input(0).dtype,
                                            query.threads());
           },
       .run =
           [](const KernelContext& context) {
             run_conv2d_direct(context, geometry_of<pass>(context), pass);
             if constexpr (sums) sum_channels(context, geometry_of<pass>(context));
           }});
  registry.add_kernel(
      op,
      {.device = DeviceType::kCpu,
       .name = "winograd",
       .can_run = [](const KernelQuery& query) { return conv2d_winograd_can_run(geometry_of<pass>(query)); },
       .microseconds =
           [](const KernelQuery& query, const Prepared*) {
             return best_if(conv2d_winograd_pays(geometry_of<pass>(query), pass, query.input(0).dtype));
           },
       .workspace_bytes =
           [](const KernelQuery& query) {
             return conv2d_winograd_workspace(geometry_of<pass>(query), pass, query.input(0).dtype,
                                              query.threads());
           },
       .run =
           [](const KernelContext& context) {
             run_conv2d_winograd(context, geometry_of<pass>(context), pass);
             if constexpr (sums) sum_channels(context, geometry_of<pass>(context));
           }});
}

}  // namespace

void register_conv2d_cpu(OpRegistry& registry);
void register_conv2d_cpu(OpRegistry& registry) {
  add_kernels<Conv2dPass::kForward>(registry, "conv2d");
  add_kernels<Conv2dPass::kForward, true>(registry, "conv2d_sums");
  add_kernels<Conv2dPass::kGradInput>(registry, "conv2d_grad_input");
  add_kernels<Conv2dPass::kGradWeight>(registry, "conv2d_grad_weight");
}

}  // namespace sinter::ops
