#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/gradient_factor.h>

namespace sinter::ops {
namespace {

__global__ void advance_kernel(int64_t count, int64_t* counts, const bool* mask, const float* factor) {
  if (skips_update(gradient_factor_at(factor))) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (mask == nullptr || mask[i]) ++counts[i];
  }
}

void run_advance_steps(const KernelContext& context) {
  const int64_t count = context.input(0).numel();
  if (count == 0) return;
  cuda::launch(context.stream(), cuda::grid_stride_shape(count, 256), advance_kernel, count,
               context.input(0).as<int64_t>(), context.input(1).as<const bool>(),
               context.input(2).as<const float>());
}

}  // namespace

void register_advance_steps_cuda(OpRegistry& registry);
void register_advance_steps_cuda(OpRegistry& registry) {
  registry.add_kernel("advance_steps", {.device = DeviceType::kCuda, .run = run_advance_steps});
}

}  // namespace sinter::ops
