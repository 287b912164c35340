#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/common/cuda/elementwise_op_cuda.h>

namespace sinter::ops {

void register_activation_cuda(OpRegistry& registry);
void register_activation_cuda(OpRegistry& registry) {
  add_elementwise_cuda_kernels(registry, ActivationOps());
}

}  // namespace sinter::ops
