#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/all_gather/all_gather_kernels.h>

namespace sinter::ops {
namespace {

/// Zeros.
void clear(void* data, size_t bytes, const Stream& stream) {
  if (bytes == 0) return;
  cuda::check(cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream.native)), "cudaMemsetAsync");
}

}  // namespace

void register_all_gather_cuda(OpRegistry& registry);
void register_all_gather_cuda(OpRegistry& registry) {
  registry.add_kernel("all_gather",
                      {.device = DeviceType::kCuda,
                       .workspace_bytes = all_gather_bytes,
                       .run = [](const KernelContext& context) { run_all_gather(context, clear); }});
  registry.add_kernel(
      "reduce_scatter",
      {.device = DeviceType::kCuda, .workspace_bytes = reduce_scatter_bytes, .run = run_reduce_scatter});
}

}  // namespace sinter::ops
