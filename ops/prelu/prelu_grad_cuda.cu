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
  const auto places_of = [&](int64_t pack) {
    const PReluPlanesPlan planes = plan_prelu_planes(view, pack, static_cast<int64_t>(size_of(dtype)));
    return planes.parts > 0 ? planes.table_size() : plan_prelu_grad(view, pack).table_size();
  };
  const int64_t places = std::max(places_of(1), places_of(widest));
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
    auto* const table = context.workspace<compute_type<T>>();
    const PReluPlanesPlan planes = plan_prelu_planes(view, wide ? cuda::kPackSize<T> : 1, sizeof(T));
    if (planes.parts > 0) {
      return (wide ? launch_prelu_grad_planes<cuda::kPackSize<T>, T, S>
                   : launch_prelu_grad_planes<1, T, S>)(context.stream(), planes, data, table);
    }
    launch_prelu_grad_parts(context.stream(), view, wide, data, table);
  });
}

}  // namespace sinter::ops
