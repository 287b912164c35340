// batch_norm_act on the CPU: ops/norm does the work.
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/norm/norm_cpu.h>

namespace sinter::ops {
namespace {

size_t forward_bytes(const KernelQuery& query) {
  return norm_forward_cpu_bytes(batch_norm_act_problem(query));
}
void run_forward(const KernelContext& context) {
  norm_forward_cpu(batch_norm_act_call(context), context.workspace());
}

size_t backward_bytes(const KernelQuery& query) {
  return norm_backward_cpu_bytes(batch_norm_act_grad_problem(query));
}
void run_backward(const KernelContext& context) {
  norm_backward_cpu(batch_norm_act_grad_call(context), context.workspace());
}

}  // namespace

void register_batch_norm_act_cpu(OpRegistry& registry);
void register_batch_norm_act_cpu(OpRegistry& registry) {
  registry.add_kernel("batch_norm_act", {.device = DeviceType::kCpu,
                                         .can_run = wants_own_kernel<BatchNormActOptions>,
                                         .workspace_bytes = forward_bytes,
                                         .run = run_forward});
  registry.add_kernel("batch_norm_act_grad", {.device = DeviceType::kCpu,
                                              .can_run = wants_own_kernel<BatchNormActGradOptions>,
                                              .workspace_bytes = backward_bytes,
                                              .run = run_backward});
}

}  // namespace sinter::ops
