// Clusters: blocks that run beside each other and read each other's shared memory (compute capability 9.0
// on). For .cu files. Kernels of clusters leave out their body elsewhere.
#pragma once

#include <cooperative_groups.h>

#include <sinter/core/cuda/device/launch.h>

namespace sinter::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/// Waits for all threads of the cluster; what they have written to shared memory can be read then.
__device__ __forceinline__ void synchronize_cluster() {
#if defined(__CUDA_ARCH__)
  cooperative_groups::this_cluster().sync();
#endif
}

/// Where block `rank` of the cluster has what lies at `shared` in this one.
template <class T>
__device__ __forceinline__ const T* shared_of(const T* shared, unsigned rank) {
#if defined(__CUDA_ARCH__)
  return cooperative_groups::this_cluster().map_shared_rank(const_cast<T*>(shared), rank);
#else
  return shared + 0 * rank;
#endif
}
#endif

/// Like launch(), of clusters of `blocks` neighbours along x, at most 8, that divide the grid. With `early`
/// as launch_early(): the kernel calls wait_for_previous(), and what comes before it on the stream must be a
/// kernel.
template <class... Parameters, class... Args>
void launch_clusters(const Stream& stream, const LaunchShape& shape, unsigned blocks, bool early,
                     void (*kernel)(Parameters...), Args&&... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = blocks;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native);
  config.attrs = attributes;
  config.numAttrs = early ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "kernel launch");
}

}  // namespace sinter::cuda
