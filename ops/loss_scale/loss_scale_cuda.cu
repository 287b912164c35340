#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/loss_scale/loss_scale_math.h>

namespace sinter::ops {
namespace {

__global__ void loss_scale_kernel(LossScaleOptions options, const double* norm, float* scale, int64_t* counts,
                                  float* factor) {
  *factor = next_loss_scale(options, *norm, scale, counts);
}

void run_loss_scale(const KernelContext& context) {
  cuda::launch(context.stream(), {dim3(1), dim3(1)}, loss_scale_kernel,
               context.attributes<LossScaleOptions>(), context.input(0).as<const double>(),
               context.input(1).as<float>(), context.input(2).as<int64_t>(), context.output(0).as<float>());
}

}  // namespace

void register_loss_scale_cuda(OpRegistry& registry);
void register_loss_scale_cuda(OpRegistry& registry) {
  registry.add_kernel("loss_scale", {.device = DeviceType::kCuda, .run = run_loss_scale});
}

}  // namespace sinter::ops
