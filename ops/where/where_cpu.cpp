#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/where/where_math.h>

namespace sinter::ops {
namespace {

/// One run of the output: each input has a step of 0 or 1.
template <class T>
void choose_run(const bool* condition, int64_t step_c, const T* a, int64_t step_a, const T* b, int64_t step_b,
                T* y, int64_t count) {
  if (step_c == 0) {
    const bool first = *condition;
    const T* from = first ? a : b;
    const int64_t step = first ? step_a : step_b;
    for (int64_t i = 0; i < count; ++i) y[i] = from[i * step];
  } else if (step_a == 1 && step_b == 1) {
    for (int64_t i = 0; i < count; ++i) y[i] = Choose()(condition[i], a[i], b[i]);
  } else if (step_a == 1) {
    const T other = *b;
    for (int64_t i = 0; i < count; ++i) y[i] = Choose()(condition[i], a[i], other);
  } else {
    const T one = *a;
    for (int64_t i = 0; i < count; ++i) y[i] = Choose()(condition[i], one, b[i * step_b]);
  }
}

void run_where(const KernelContext& context) {
  const TensorView &condition = context.input(0), &a = context.input(1), &b = context.input(2),
                   &y = context.output(0);
  if (y.numel() == 0) return;
  const auto plan = plan_broadcast<3>(y.shape, {condition.shape, a.shape, b.shape});
  const auto step = [&](size_t k) { return plan.steps(k) ? int64_t{1} : int64_t{0}; };
  dispatch_bits(y.dtype, [&]<class T> {
    parallel_for(y.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
      for_each_run(plan, begin, end, [&](int64_t first, int64_t count, const auto& offsets) {
        choose_run(static_cast<const bool*>(condition.data) + offsets[0], step(0),
                   static_cast<const T*>(a.data) + offsets[1], step(1),
                   static_cast<const T*>(b.data) + offsets[2], step(2), static_cast<T*>(y.data) + first,
                   count);
      });
    });
  });
}

}  // namespace

void register_where_cpu(OpRegistry& registry);
void register_where_cpu(OpRegistry& registry) {
  registry.add_kernel("where", {.device = DeviceType::kCpu, .run = run_where});
}

}  // namespace sinter::ops
