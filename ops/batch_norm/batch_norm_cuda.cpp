// batch_norm on a GPU: ops/norm/cuda does the work.
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/norm/cuda/norm_registration_cuda.h>

namespace sinter::ops {

void register_batch_norm_cuda(OpRegistry& registry);
void register_batch_norm_cuda(OpRegistry& registry) {
  add_norm_kernels<batch_norm_problem, batch_norm_call>(registry, "batch_norm");
  add_norm_kernels<batch_norm_grad_problem, batch_norm_grad_call>(registry, "batch_norm_grad");
}

}  // namespace sinter::ops
