// Launches beyond the plain one: a second kernel that starts up while the first one finishes, and clusters of
// blocks. For .cu files.
#pragma once

#include <sinter/core/cuda/launch.h>

namespace sinter::cuda {

namespace detail {

template <class... Parameters, class... Args>
void launch_with(const Stream& stream, const LaunchShape& shape, cudaLaunchAttribute attribute,
                 void (*kernel)(Parameters...), Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "kernel launch");
}

}  // namespace detail

/// To be called by every thread of the first kernel: from then on the second one may start.
__device__ __forceinline__ void allow_next_kernel() {
  cudaTriggerProgrammaticLaunchCompletion();
}

/// To be called by every thread of the second kernel before it reads what the first one wrote.
__device__ __forceinline__ void wait_for_previous_kernel() {
  cudaGridDependencySynchronize();
}

/// Like launch(), but the kernel need not wait for the one queued before it (programmatic dependent launch):
/// it begins as soon as all blocks of that one have begun and called allow_next_kernel(), or have ended, and
/// calls wait_for_previous_kernel() itself.
template <class... Parameters, class... Args>
void launch_early(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                  Args&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  detail::launch_with(stream, shape, attribute, kernel, args...);
}

/// Like launch(), with all blocks of one x, those of the grid's y, in a cluster: they run at once and can
/// read each other's shared memory. grid.y is at most 8.
template <class... Parameters, class... Args>
void launch_column_clusters(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                            Args&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 1;
  attribute.val.clusterDim.y = shape.grid.y;
  attribute.val.clusterDim.z = 1;
  detail::launch_with(stream, shape, attribute, kernel, args...);
}

}  // namespace sinter::cuda
