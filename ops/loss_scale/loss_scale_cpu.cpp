#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/loss_scale/loss_scale_math.h>

namespace sinter::ops {
namespace {

void run_loss_scale(const KernelContext& context) {
  *context.output(0).as<float>() =
      next_loss_scale(context.attributes<LossScaleOptions>(), *context.input(0).as<const double>(),
                      context.input(1).as<float>(), context.input(2).as<int64_t>());
}

}  // namespace

void register_loss_scale_cpu(OpRegistry& registry);
void register_loss_scale_cpu(OpRegistry& registry) {
  registry.add_kernel("loss_scale", {.device = DeviceType::kCpu, .run = run_loss_scale});
}

}  // namespace sinter::ops
