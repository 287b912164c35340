// The architecture that this library's kernels were compiled for, asked of one of them.
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {
namespace {

/// Compiled as all other kernels are, so that its attributes are theirs.
__global__ void marker_kernel() {}

}  // namespace

int compiled_architecture(int device) {
  const DeviceGuard guard(device);
  cudaFuncAttributes attributes{};
  SINTER_CUDA_CHECK(cudaFuncGetAttributes(&attributes, marker_kernel));
  return attributes.ptxVersion;
}

}  // namespace sinter::cuda
