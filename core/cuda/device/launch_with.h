// A launch with one of CUDA's launch attributes. For .cu files.
#pragma once

#include <sinter/core/cuda/device/launch.h>

namespace sinter::cuda {

/// Like launch(), with `attribute`.
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

}  // namespace sinter::cuda
