#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/common/cpu/elementwise_op_cpu.h>

namespace sinter::ops {

void register_activation_cpu(OpRegistry& registry);
void register_activation_cpu(OpRegistry& registry) {
  add_elementwise_cpu_kernels(registry, ActivationOps());
}

}  // namespace sinter::ops
