#include <sinter/ops/argmax/argmax_attributes.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/extremes/extreme_places_cpu.h>
#include <sinter/ops/reduce/reduce_math.h>

namespace sinter::ops {
namespace {

void run_argmax(const KernelContext& context) {
  const TensorView &x = context.input(0), &indices = context.output(0);
  if (indices.numel() == 0) return;
  const int axis = normalize_axis(context.attributes<ArgmaxAttributes>().axis, x.shape.rank(), "argmax");
  AxisMask mask{};
  mask[static_cast<size_t>(axis)] = true;
  const ReducePlan plan = plan_reduction(x.shape, mask);
  auto* places = indices.as<int64_t>();
  dispatch_all(x.dtype, "argmax", [&]<class T> {
    find_extremes<MaxReducer>(plan, x.as<const T>(),
                              [=](int64_t output, int64_t, int64_t row) { places[output] = row; });
  });
}

}  // namespace

void register_argmax_cpu(OpRegistry& registry);
void register_argmax_cpu(OpRegistry& registry) {
  registry.add_kernel("argmax", {.device = DeviceType::kCpu, .run = run_argmax});
}

}  // namespace sinter::ops
