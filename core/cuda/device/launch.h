// The one way to launch a kernel: grid arithmetic, the stream, and the check afterwards. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Where and how wide a kernel runs.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};

/// ceil(count / size) for counts >= 0.
constexpr int64_t blocks_for(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/// One block of `threads` for every `per_block` items, at most `most` blocks: kernels loop with a grid stride
/// beyond.
inline LaunchShape grid_stride_shape(int64_t items, int64_t per_block, unsigned threads = 256,
                                     int64_t most = int64_t{1} << 30) {
  const int64_t blocks = std::clamp<int64_t>(blocks_for(items, per_block), 1, most);
  return {dim3(static_cast<unsigned>(blocks)), dim3(threads), 0};
}

/// Launches `kernel(args...)` on `stream` and checks the launch; an empty grid is skipped. Errors of the
/// kernel itself surface at the next synchronisation.
template <class... Parameters, class... Args>
void launch(const Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...), Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  kernel<<<shape.grid, shape.block, shape.shared_bytes, static_cast<cudaStream_t>(stream.native)>>>(
      static_cast<Parameters>(args)...);
  check(cudaGetLastError(), "kernel launch");
}

}  // namespace sinter::cuda
