// Launches in which blocks run at once and read each other's shared memory (thread block clusters, compute
// capability 9.0 on). For .cu files.
#pragma once

#include <sinter/core/cuda/device/launch_with.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {

/// Like launch(), with all blocks of one x, those of the grid's y, in a cluster: they run at once and can
/// read each other's shared memory. grid.y is at most 8. Only where device_traits()
/// says that there are clusters.
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

}  // namespace sinter::cuda
