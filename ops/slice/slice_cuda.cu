#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
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
  copy_rows_cuda(context.stream(), y.data, bytes, x.as<const std::byte>() + begin * unit, split.extent * unit,
                 bytes, split.outer);
}

}  // namespace

void register_slice_cuda(OpRegistry& registry);
void register_slice_cuda(OpRegistry& registry) {
  registry.add_kernel("slice", {.device = DeviceType::kCuda, .run = run_slice});
}

}  // namespace sinter::ops
