#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/flip/flip_plan.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

/// Where row `row` of the result comes from, in rows: all axes but the last.
int64_t source_row(const FlipPlan& plan, int64_t row) {
  int64_t from = 0, stride = 1;
  for (int axis = plan.rank - 2; axis >= 0; --axis) {
    const int64_t extent = plan.extents[axis], at = row % extent;
    row /= extent;
    from += (plan.flipped[axis] ? extent - 1 - at : at) * stride;
    stride *= extent;
  }
  return from;
}

void run_flip(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  if (y.numel() == 0) return;
  const FlipPlan plan(x.shape, context.attributes<FlipAttributes>());
  const int64_t length = plan.rank > 0 ? plan.extents[plan.rank - 1] : 1;
  const bool reversed = plan.rank > 0 && plan.flipped[plan.rank - 1];
  dispatch_bits(x.dtype, [&]<class T> {
    const T* const source = x.as<const T>();
    T* const result = y.as<T>();
    if (plan.rank == 1 && reversed) {  // one row, which threads share
      parallel_for(length, kGrainElements, [&](int64_t begin, int64_t end) {
        std::reverse_copy(source + length - end, source + length - begin, result + begin);
      });
      return;
    }
    const int64_t grain = std::max<int64_t>(1, kGrainElements / length);
    parallel_for(y.numel() / length, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const from = source + source_row(plan, row) * length;
        if (reversed) {
          std::reverse_copy(from, from + length, result + row * length);
        } else {
          std::copy_n(from, length, result + row * length);
        }
      }
    });
  });
}

}  // namespace

void register_flip_cpu(OpRegistry& registry);
void register_flip_cpu(OpRegistry& registry) {
  registry.add_kernel("flip", {.device = DeviceType::kCpu, .run = run_flip});
}

}  // namespace sinter::ops
