#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cpu/copy_rows_cpu.h>
#include <sinter/ops/concat/concat.h>

namespace sinter::ops {
namespace {

void run_concat(const KernelContext& context) {
  const TensorView& y = context.output(0);
  const int axis = normalize_axis(context.attributes<ConcatAttributes>().axis, y.shape.rank(), "concat");
  const AxisSplit split = split_at(y.shape, axis);
  const int64_t unit = split.inner * static_cast<int64_t>(size_of(y.dtype));
  auto* to = y.as<std::byte>();
  for (size_t i = 0; i < context.input_count(); ++i) {
    const int64_t bytes = context.input(i).shape[axis] * unit;
    copy_rows(to, split.extent * unit, context.input(i).data, bytes, bytes, split.outer);
    to += bytes;
  }
}

}  // namespace

void register_concat_cpu(OpRegistry& registry);
void register_concat_cpu(OpRegistry& registry) {
  registry.add_kernel("concat", {.device = DeviceType::kCpu, .run = run_concat});
}

}  // namespace sinter::ops
