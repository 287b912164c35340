#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/gradient_factor.h>

namespace sinter::ops {
namespace {

void run_advance_steps(const KernelContext& context) {
  if (skips_update(gradient_factor_at(context.input(2).data))) return;
  auto* counts = context.input(0).as<int64_t>();
  const auto* mask = context.input(1).as<const bool>();
  for (int64_t i = 0; i < context.input(0).numel(); ++i) counts[i] += mask == nullptr || mask[i] ? 1 : 0;
}

}  // namespace

void register_advance_steps_cpu(OpRegistry& registry);
void register_advance_steps_cpu(OpRegistry& registry) {
  registry.add_kernel("advance_steps", {.device = DeviceType::kCpu, .run = run_advance_steps});
}

}  // namespace sinter::ops
