// Flipping on a GPU is a copy whose source begins at its last element along flipped axes and has negative
// strides there.
#include <array>
#include <span>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/flip/flip_plan.h>

namespace sinter::ops {
namespace {

void run_flip(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  if (y.numel() == 0) return;
  const FlipPlan plan(x.shape, context.attributes<FlipAttributes>());
  const int64_t piece = plan.run() * static_cast<int64_t>(size_of(x.dtype));
  const int rank = plan.run() > 1 ? plan.rank - 1 : plan.rank;  // without the axis within pieces
  std::array<StridedAxis, kMaxRank> axes{};
  int64_t stride = piece, first = 0;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const int64_t extent = plan.extents[axis];
    axes[static_cast<size_t>(axis)] = {extent, stride, plan.flipped[axis] ? -stride : stride};
    if (plan.flipped[axis]) first += (extent - 1) * stride;
    stride *= extent;
  }
  copy_strided_cuda(context.stream(), y.data, x.as<const std::byte>() + first,
                    std::span(axes.data(), static_cast<size_t>(rank)), piece);
}

}  // namespace

void register_flip_cuda(OpRegistry& registry);
void register_flip_cuda(OpRegistry& registry) {
  registry.add_kernel("flip", {.device = DeviceType::kCuda, .run = run_flip});
}

}  // namespace sinter::ops
