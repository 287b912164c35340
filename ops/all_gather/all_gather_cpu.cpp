#include <cstring>

#include <sinter/core/op/registry.h>
#include <sinter/ops/all_gather/all_gather_kernels.h>

namespace sinter::ops {
namespace {

/// Zeros.
void clear(void* data, size_t bytes, const Stream&) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

}  // namespace

void register_all_gather_cpu(OpRegistry& registry);
void register_all_gather_cpu(OpRegistry& registry) {
  registry.add_kernel("all_gather",
                      {.device = DeviceType::kCpu,
                       .workspace_bytes = all_gather_bytes,
                       .run = [](const KernelContext& context) { run_all_gather(context, clear); }});
  registry.add_kernel(
      "reduce_scatter",
      {.device = DeviceType::kCpu, .workspace_bytes = reduce_scatter_bytes, .run = run_reduce_scatter});
}

}  // namespace sinter::ops
