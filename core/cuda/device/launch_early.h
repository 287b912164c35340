// Chains of short kernels: one may be set up while the one before it on the stream still runs (programmatic
// dependent launch, compute capability 9.0 on; elsewhere these are ordinary launches). For .cu files.
//
// A kernel that is launched early calls wait_for_previous() in every thread that goes on, before it touches
// memory that kernels before it write. So each kernel of a chain has ended only after those before it, and
// an ordinary launch behind the chain waits for all of it.
#pragma once

#include <sinter/core/cuda/device/launch_with.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {

/// Lets a kernel that is launched early behind this one be set up, once all blocks have come here.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Waits until the kernels before this one have ended and their writes can be seen.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Like launch(), for a kernel that calls wait_for_previous(). What comes before it on the stream must be a
/// kernel.
template <class... Parameters, class... Args>
void launch_early(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                  Args&&... args) {
  if (!device_traits(stream.device.index).early_launch) {
    launch(stream, shape, kernel, static_cast<Args&&>(args)...);
    return;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  launch_with(stream, shape, attribute, kernel, static_cast<Args&&>(args)...);
}

}  // namespace sinter::cuda
