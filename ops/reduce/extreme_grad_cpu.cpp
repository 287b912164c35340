// The gradients of max and min: dy goes to the first extreme element.
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_cpu.h>
#include <sinter/ops/reduce/reduce_math.h>
#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {
namespace {

constexpr int64_t kColumns = 512;  // columns whose extremes a task looks for at once

/// dx[place of the first extreme] = dy for the columns [first, first + width) of the blocks at `base`; dx is
/// zero.
template <class Reducer, class T>
void scatter_columns(const ReducePlan& plan, int64_t base, int64_t first, int64_t width, const T* x,
                     const T* dy, T* dx) {
  using C = compute_type<T>;
  C best[kColumns];
  int64_t places[kColumns];
  const int64_t blocks = plan.reduced.count();
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t start = base + plan.reduced.offset(block) + first;
    for (int64_t row = 0; row < plan.rows; ++row) {
      const int64_t offset = start + row * plan.columns;
      const bool fresh = block == 0 && row == 0;
      for (int64_t c = 0; c < width; ++c) {
        const C value = static_cast<C>(x[offset + c]);
        if (fresh || Reducer::replaces(value, best[c])) {
          best[c] = value;
          places[c] = offset + c;
        }
      }
    }
  }
  for (int64_t c = 0; c < width; ++c) dx[places[c]] = dy[c];
}

template <class Reducer>
void run_extreme_grad(const KernelContext& context) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  if (x.numel() == 0) return;
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.shape.rank(), "reduce");
  const ReducePlan plan = plan_reduction(x.shape, mask);
  const int64_t column_blocks = (plan.columns + kColumns - 1) / kColumns;
  const int64_t task_size = plan.terms() * std::min(plan.columns, kColumns);
  dispatch_float(x.dtype, "reduce", [&]<class T> {
    parallel_for(dx.numel(), kElementwiseGrain,
                 [&](int64_t begin, int64_t end) { std::fill(dx.as<T>() + begin, dx.as<T>() + end, T{}); });
    parallel_for(plan.kept.count() * column_blocks, std::max<int64_t>(kElementwiseGrain / task_size, 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t kept = task / column_blocks, first = task % column_blocks * kColumns;
                     scatter_columns<Reducer>(plan, plan.kept.offset(kept), first,
                                              std::min(kColumns, plan.columns - first), x.as<const T>(),
                                              dy.as<const T>() + kept * plan.columns + first, dx.as<T>());
                   }
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
