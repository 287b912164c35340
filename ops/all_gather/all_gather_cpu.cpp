#include <sinter/ops/all_gather/all_gather_kernels.h>

namespace sinter::ops {

void register_all_gather_cpu(OpRegistry& registry);
void register_all_gather_cpu(OpRegistry& registry) {
  add_all_gather_kernels(registry, DeviceType::kCpu);
}

}  // namespace sinter::ops
