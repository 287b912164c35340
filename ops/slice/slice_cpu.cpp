#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cpu/copy_rows_cpu.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::ops {
namespace {

void run_slice(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  const auto& slice = context.attributes<SliceAttributes>();
  const int axis = normalize_axis(slice.axis, x.shape.rank(), "slice");
  const AxisSplit split = split_at(x.shape, axis);
  const int64_t unit = split.inner * static_cast<int64_t>(size_of(x.dtype));
  const int64_t begin = slice.begin < 0 ? slice.begin + split.extent : slice.begin;
  const int64_t bytes = y.shape[axis] * unit;
  copy_rows(y.data, bytes, static_cast<const std::byte*>(x.data) + begin * unit, split.extent * unit, bytes,
            split.outer);
}

}  // namespace

void register_slice_cpu(OpRegistry& registry);
void register_slice_cpu(OpRegistry& registry) {
  registry.add_kernel("slice", {.device = DeviceType::kCpu, .run = run_slice});
}

}  // namespace sinter::ops
