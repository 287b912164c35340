// The gradients of max and min: dy goes to the first extreme element.
#include <sinter/ops/reduce/extremes/extreme_places_cpu.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_cpu.h>
#include <sinter/ops/reduce/reduce_math.h>
#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {
namespace {

template <class Reducer>
void run_extreme_grad(const KernelContext& context) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  if (x.numel() == 0) return;
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.shape.rank(), "reduce");
  const ReducePlan plan = plan_reduction(x.shape, mask);
  dispatch_float(x.dtype, "reduce", [&]<class T> {
    const T* from = dy.as<const T>();
    T* to = dx.as<T>();
    parallel_for(dx.numel(), kElementwiseGrain,
                 [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, T{}); });
    find_extremes<Reducer>(plan, x.as<const T>(), [=](int64_t output, int64_t start, int64_t row) {
      to[start + row * plan.columns] = from[output];
    });
  });
}

}  // namespace

void run_max_grad_cpu(const KernelContext& context) {
  run_extreme_grad<MaxReducer>(context);
}

void run_min_grad_cpu(const KernelContext& context) {
  run_extreme_grad<MinReducer>(context);
}

}  // namespace sinter::ops
