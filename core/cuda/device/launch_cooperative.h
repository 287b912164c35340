// Launches whose blocks all run at once, so that they may wait for each other. For .cu files.
#pragma once

#include <sinter/core/cuda/device/launch_with.h>

namespace sinter::cuda {

/// Like launch(); the GPU must have room for all blocks at a time. The kernel may use
/// cooperative_groups::this_grid().
template <class... Parameters, class... Args>
void launch_cooperative(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
                        Args&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  launch_with(stream, shape, attribute, kernel, static_cast<Args&&>(args)...);
}

}  // namespace sinter::cuda
