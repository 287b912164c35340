// normalize_act on the CPU: ops/norm does the work.
#include <sinter/core/op/registry.h>
#include <sinter/ops/norm/norm_cpu.h>
#include <sinter/ops/normalize_act/normalize_act_call.h>

namespace sinter::ops {

void register_normalize_act_cpu(OpRegistry& registry);
void register_normalize_act_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "normalize_act",
      {.device = DeviceType::kCpu,
       .workspace_bytes =
           [](const KernelQuery& query) { return norm_forward_cpu_bytes(normalize_act_problem(query)); },
       .run =
           [](const KernelContext& context) {
             norm_forward_cpu(normalize_act_call(context), context.workspace());
           }});
}

}  // namespace sinter::ops
