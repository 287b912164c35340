// Thread block clusters: blocks that run at once and write into each other's shared memory (compute
// capability 9.0 on; elsewhere nothing here may be called). For .cu files.
#pragma once

#include <sinter/core/cuda/device/launch_with.h>

namespace sinter::cuda {

/// Like launch(), with all blocks of one x, those of the grid's y, in a cluster; at most 8. Only where
/// device_traits() says that there are clusters.
template <class... Parameters, class... Args>
void launch_column_clusters(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                            Args&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 1;
  attribute.val.clusterDim.y = shape.grid.y;
  attribute.val.clusterDim.z = 1;
  launch_with(stream, shape, attribute, kernel, static_cast<Args&&>(args)...);
}

/// A barrier of all threads of a cluster in two halves, each called by all of them: what was written before
/// the first can be read behind the second.
__device__ __forceinline__ void arrive_at_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __syncwarp();
  __cluster_barrier_arrive();
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __syncwarp();
  __cluster_barrier_wait();
#endif
}

/// `place`, in shared memory, of the cluster's first block. That block must have begun, and may not end
/// before what was written there can be read: a barrier before and one behind.
template <class C>
__device__ __forceinline__ C* in_first_block(C* place) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return static_cast<C*>(__cluster_map_shared_rank(place, 0));
#else
  return place;
#endif
}

}  // namespace sinter::cuda
