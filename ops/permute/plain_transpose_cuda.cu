// Transposing small tensors on a GPU: see plain_transpose.h.
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/permute/plain_transpose_cuda.h>

namespace sinter::ops {
namespace {

/// Blocks that a processor holds at once: all of its share of such a tensor.
constexpr int plain_blocks(size_t element_bytes) {
  return element_bytes == 4 ? 8 : 4;
}

template <class T, bool kWide>
__global__ void __launch_bounds__(kPlainThreads, plain_blocks(sizeof(T)))
    plain_transpose_kernel(const T* __restrict__ in, T* __restrict__ out, int rows, int columns) {
  __shared__ __align__(16) std::byte image[PlainTile<T>::kSide * PlainTile<T>::kPitch];
  const auto thread = static_cast<int>(threadIdx.x), matrix = static_cast<int>(blockIdx.z);
  const int first_row = static_cast<int>(blockIdx.x) * PlainTile<T>::kSide,
            first_column = static_cast<int>(blockIdx.y) * PlainTile<T>::kSide;
  load_plain<T, kWide>(in, rows, columns, first_row, first_column, matrix, thread, image);
  __syncthreads();
  store_plain<T, kWide>(out, rows, columns, first_row, first_column, matrix, thread, image);
}

template <class T, bool kWide>
void launch_plain(const Stream& stream, const PlainJob& job, const void* in, void* out) {
  const auto tiles = [](int count) {
    return static_cast<unsigned>(cuda::blocks_for(count, PlainTile<T>::kSide));
  };
  const cuda::LaunchShape shape{dim3(tiles(job.rows), tiles(job.columns), static_cast<unsigned>(job.batch)),
                                dim3(kPlainThreads)};
  cuda::launch(stream, shape, plain_transpose_kernel<T, kWide>, static_cast<const T*>(in),
               static_cast<T*>(out), job.rows, job.columns);
}

}  // namespace

void transpose_plain_cuda(const Stream& stream, const PlainJob& job, int element_bytes, const void* in,
                          void* out) {
  switch (element_bytes) {
    case 2:
      if (job.wide) return launch_plain<uint16_t, true>(stream, job, in, out);
      return launch_plain<uint16_t, false>(stream, job, in, out);
    case 4:
      return launch_plain<uint32_t, false>(stream, job, in, out);
    default:
      return launch_plain<uint64_t, false>(stream, job, in, out);
  }
}

}  // namespace sinter::ops
