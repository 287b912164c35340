// The ops of batch normalisation on the CPU: ops/norm does the work.
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/norm/norm_cpu.h>

namespace sinter::ops {
namespace {

template <auto problem_of, auto call_of>
void add_kernel(OpRegistry& registry, const char* op, bool (*can_run)(const KernelQuery&) = nullptr) {
  registry.add_kernel(
      op, {.device = DeviceType::kCpu,
           .can_run = can_run,
           .workspace_bytes = [](const KernelQuery& query) { return norm_cpu_bytes(problem_of(query)); },
           .run = [](const KernelContext& context) { norm_cpu(call_of(context), context.workspace()); }});
}

}  // namespace

void register_batch_norm_cpu(OpRegistry& registry);
void register_batch_norm_cpu(OpRegistry& registry) {
  add_kernel<batch_norm_problem<BatchNormOptions>, batch_norm_call<BatchNormOptions>>(registry, "batch_norm");
  add_kernel<batch_norm_grad_problem, batch_norm_grad_call>(registry, "batch_norm_grad");
  add_kernel<batch_norm_problem<BatchNormActOptions>, batch_norm_call<BatchNormActOptions>>(
      registry, "batch_norm_act", wants_own_kernel<BatchNormActOptions>);
  add_kernel<batch_norm_act_grad_problem, batch_norm_act_grad_call>(
      registry, "batch_norm_act_grad", wants_own_kernel<BatchNormActGradOptions>);
}

}  // namespace sinter::ops
