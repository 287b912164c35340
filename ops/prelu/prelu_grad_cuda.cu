// Both gradients of PReLU in one pass over x and dy, deterministic.
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu_cuda.h>
#include <sinter/ops/prelu/prelu_dispatch.h>
#include <sinter/ops/prelu/prelu_grad_kernels_cuda.h>

namespace sinter::ops {

size_t prelu_grad_workspace(const KernelQuery& query) {
  const DType dtype = query.input(0).dtype;
  const ChannelView view =
      prelu_view(query.input(0).shape, query.input(1).shape, query.attributes<PReluAttributes>().layout);
  const int64_t widest = 16 / static_cast<int64_t>(size_of(dtype));
  // Which one runs depends on addresses.
  const int64_t places =
      std::max(plan_prelu_grad(view, 1).table_size(), plan_prelu_grad(view, widest).table_size());
  return static_cast<size_t>(places) * size_of(accumulate_dtype(dtype));
}

void run_prelu_grad(const KernelContext& context) {
  const ChannelView view = prelu_view(context.input(0).shape, context.input(1).shape,
                                      context.attributes<PReluAttributes>().layout);
  dispatch_prelu(context.input(0).dtype, context.input(1).dtype, "prelu_grad", [&]<class T, class S> {
    const PReluGradData<T, S> data{context.input(1).as<const S>(), context.input(0).as<const T>(),
                                   context.input(2).as<const T>(), context.output(0).as<T>(),
                                   context.output(1).as<S>()};
    const bool wide =
        cuda::is_aligned(data.x, 16) && cuda::is_aligned(data.dy, 16) && cuda::is_aligned(data.dx, 16);
    if (wide && cuda::device_traits(context.stream().device.index).clusters) {
      const PReluClusterPlan plan = plan_prelu_clusters(view, cuda::kPackSize<T>);
      if (plan.groups > 0) return launch_prelu_grad_channels(context.stream(), plan, data);
    }
    launch_prelu_grad_parts(context.stream(), view, wide, data, context.workspace<compute_type<T>>());
  });
}

}  // namespace sinter::ops
