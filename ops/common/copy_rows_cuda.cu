#include <sinter/core/cuda/launch.h>
#include <sinter/ops/common/copy_units_cuda.h>
#include <sinter/ops/common/index_divide_cuda.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Strides in units of T; `count` is the number of units in all rows.
template <class Index, class T>
__global__ void copy_rows_kernel(Index count, IndexDivide<Index> row_units, T* to, int64_t to_stride,
                                 const T* from, int64_t from_stride) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    Index column = 0;
    const auto row = static_cast<int64_t>(row_units.divide(i, column));
    to[row * to_stride + static_cast<int64_t>(column)] =
        from[row * from_stride + static_cast<int64_t>(column)];
  }
}

}  // namespace

void copy_rows_cuda(const Stream& stream, void* to, int64_t to_stride, const void* from, int64_t from_stride,
                    int64_t bytes, int64_t rows) {
  if (bytes == 0 || rows == 0) return;
  if (rows == 1 || (to_stride == bytes && from_stride == bytes)) {
    SINTER_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes * rows), cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream.native)));
    return;
  }
  const int64_t unit = widest_unit({address_of(to), address_of(from), to_stride, from_stride, bytes});
  const int64_t count = bytes / unit * rows;
  dispatch_unit(unit, [&]<class T> {
    dispatch_index(count, [&]<class Index> {
      cuda::launch(stream, cuda::grid_stride_shape(count, kThreads, kThreads), copy_rows_kernel<Index, T>,
                   count, IndexDivide<Index>(bytes / unit), static_cast<T*>(to), to_stride / unit,
                   static_cast<const T*>(from), from_stride / unit);
    });
  });
}

}  // namespace sinter::ops
