#include <sinter/ops/all_reduce/all_reduce_kernels.h>

namespace sinter::ops {

void register_all_reduce_cuda(OpRegistry& registry);
void register_all_reduce_cuda(OpRegistry& registry) {
  add_all_reduce_kernels(registry, DeviceType::kCuda);
}

}  // namespace sinter::ops
