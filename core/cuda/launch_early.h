// Launching the small second kernel of a pair so that it starts up while the first one finishes (programmatic
// dependent launch). For .cu files.
#pragma once

#include <sinter/core/cuda/launch.h>

namespace sinter::cuda {

/// To be called by every thread of the first kernel: from then on the second one may start.
__device__ __forceinline__ void allow_next_kernel() {
  cudaTriggerProgrammaticLaunchCompletion();
}

/// To be called by every thread of the second kernel before it reads what the first one wrote.
__device__ __forceinline__ void wait_for_previous_kernel() {
  cudaGridDependencySynchronize();
}

/// Like launch(), but the kernel need not wait for the one queued before it: it begins as soon as all blocks
/// of that one have begun and called allow_next_kernel(), or have ended, and calls wait_for_previous_kernel()
/// itself.
template <class... Parameters, class... Args>
void launch_early(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                  Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "kernel launch");
}

}  // namespace sinter::cuda
