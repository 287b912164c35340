// normalize_act on a GPU: the streaming kernels of ops/norm/cuda do the work.
#include <sinter/core/op/registry.h>
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/normalize_act/normalize_act_call.h>

namespace sinter::ops {

void register_normalize_act_cuda(OpRegistry& registry);
void register_normalize_act_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "normalize_act",
      {.device = DeviceType::kCuda,
       .name = "streaming",
       .workspace_bytes =
           [](const KernelQuery& query) { return norm_streaming_bytes(normalize_act_problem(query)); },
       .run =
           [](const KernelContext& context) {
             norm_streaming(normalize_act_call(context), context.stream(), context.workspace());
           }});
}

}  // namespace sinter::ops
