#include <sinter/ops/argmax/argmax_attributes.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/arg_reduce_cuda.h>

namespace sinter::ops {
namespace {

struct StorePlace {
  int64_t* indices;
  __device__ void operator()(const ReduceWalk&, int64_t output, int64_t term) const {
    indices[output] = term;
  }
};

struct StoreColumn {
  int64_t* indices;
  __device__ void operator()(int64_t row, int column) const { indices[row] = column; }
};

AxisMask mask_of(const ArgmaxAttributes& attributes, const Shape& x) {
  AxisMask mask{};
  mask[static_cast<size_t>(normalize_axis(attributes.axis, x.rank(), "argmax"))] = true;
  return mask;
}

size_t argmax_workspace(const KernelQuery& query) {
  const Shape& x = query.input(0).shape;
  return arg_reduce_workspace(x, mask_of(query.attributes<ArgmaxAttributes>(), x));
}

void run_argmax(const KernelContext& context) {
  const TensorView &x = context.input(0), &indices = context.output(0);
  if (indices.numel() == 0) return;
  const AxisMask mask = mask_of(context.attributes<ArgmaxAttributes>(), x.shape);
  const ReducePlan plan = plan_reduction(x.shape, mask);
  dispatch_all(x.dtype, "argmax", [&]<class T> {
    if constexpr (!std::is_integral_v<T>) {
      const ResidentPlaces<MaxReducer, T, StoreColumn> places{x.as<const T>(), {indices.as<int64_t>()}};
      if (suits_resident_rows(plan, cuda::kPackSize<T>) &&
          launch_resident_rows<T>(context.stream(), plan.outputs(), plan.rows, places, {x.data})) {
        return;
      }
    }
    launch_arg_reduce<MaxReducer>(context.stream(), x.shape, mask, x.as<const T>(), context.workspace(),
                                  StorePlace{indices.as<int64_t>()});
  });
}

}  // namespace

void register_argmax_cuda(OpRegistry& registry);
void register_argmax_cuda(OpRegistry& registry) {
  registry.add_kernel("argmax",
                      {.device = DeviceType::kCuda, .workspace_bytes = argmax_workspace, .run = run_argmax});
}

}  // namespace sinter::ops
