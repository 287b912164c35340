#include <sinter/ops/all_gather/all_gather_kernels.h>

namespace sinter::ops {

void register_all_gather_cuda(OpRegistry& registry);
void register_all_gather_cuda(OpRegistry& registry) {
  add_all_gather_kernels(registry, DeviceType::kCuda);
}

}  // namespace sinter::ops
