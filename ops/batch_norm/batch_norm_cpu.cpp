// batch_norm on the CPU: ops/norm does the work.
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/norm/norm_cpu.h>

namespace sinter::ops {
namespace {

size_t forward_bytes(const KernelQuery& query) {
  return norm_forward_cpu_bytes(batch_norm_problem(query));
}
void run_forward(const KernelContext& context) {
  norm_forward_cpu(batch_norm_call(context), context.workspace());
}

size_t backward_bytes(const KernelQuery& query) {
  return norm_backward_cpu_bytes(batch_norm_grad_problem(query));
}
void run_backward(const KernelContext& context) {
  norm_backward_cpu(batch_norm_grad_call(context), context.workspace());
}

}  // namespace

void register_batch_norm_cpu(OpRegistry& registry);
void register_batch_norm_cpu(OpRegistry& registry) {
  registry.add_kernel("batch_norm",
                      {.device = DeviceType::kCpu, .workspace_bytes = forward_bytes, .run = run_forward});
  registry.add_kernel("batch_norm_grad",
                      {.device = DeviceType::kCpu, .workspace_bytes = backward_bytes, .run = run_backward});
}

}  // namespace sinter::ops
