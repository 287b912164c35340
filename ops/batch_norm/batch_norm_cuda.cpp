// The ops of batch normalisation on a GPU: ops/norm/cuda does the work, or cuDNN.
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/norm/cuda/norm_registration_cuda.h>

namespace sinter::ops {

void register_cudnn_batch_norm(OpRegistry& registry);  // cudnn_norm_cuda.cpp
void register_batch_norm_cuda(OpRegistry& registry);
void register_batch_norm_cuda(OpRegistry& registry) {
  add_norm_kernels<batch_norm_problem, batch_norm_call>(registry, "batch_norm");
  add_norm_kernels<batch_norm_grad_problem, batch_norm_grad_call>(registry, "batch_norm_grad");
  add_norm_kernels<batch_norm_act_problem, batch_norm_act_call, wants_own_kernel<BatchNormActOptions>>(
      registry, "batch_norm_act");
  add_norm_kernels<batch_norm_act_grad_problem, batch_norm_act_grad_call,
                   wants_own_kernel<BatchNormActGradOptions>>(registry, "batch_norm_act_grad");
  register_cudnn_batch_norm(registry);
}

}  // namespace sinter::ops
