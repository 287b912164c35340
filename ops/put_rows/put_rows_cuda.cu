// Rows into a table on a GPU: a copy in the widest units that address and row allow. Indices cannot raise
// errors here: a row whose index is out of range goes nowhere.
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/common/overlap.h>
#include <sinter/ops/put_rows/put_rows.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// `columns`: units of T in a row.
template <class Index, class T>
__global__ void put_rows_kernel(Index count, IndexDivide<Index> divide_columns, int64_t columns,
                                int64_t height, const int64_t* indices, const T* rows, T* target) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    Index column = 0;
    const int64_t row = indices[divide_columns.divide(i, column)];
    if (row >= 0 && row < height) target[row * columns + static_cast<int64_t>(column)] = rows[i];
  }
}

void run_put_rows(const KernelContext& context) {
  const std::vector<TensorView> inputs = inputs_apart(context, [&](void* to, const void* from, size_t bytes) {
    SINTER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(context.stream().native)));
  });
  const TensorView &target = inputs[0], &indices = inputs[1], &rows = inputs[2];
  if (rows.numel() == 0) return;
  const int64_t bytes = target.shape[1] * static_cast<int64_t>(size_of(target.dtype));
  const int64_t unit = widest_unit({address_of(target.data), address_of(rows.data), bytes});
  const int64_t columns = bytes / unit;
  const int64_t count = rows.shape[0] * columns;
  dispatch_unit(unit, [&]<class T> {
    dispatch_index(count, [&]<class Index> {
      cuda::launch(context.stream(), cuda::grid_stride_shape(count, kThreads, kThreads),
                   put_rows_kernel<Index, T>, count, IndexDivide<Index>(columns), columns, target.shape[0],
                   indices.as<const int64_t>(), rows.as<const T>(), target.as<T>());
    });
  });
}

}  // namespace

void register_put_rows_cuda(OpRegistry& registry);
void register_put_rows_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "put_rows_", {.device = DeviceType::kCuda, .workspace_bytes = overlapping_bytes, .run = run_put_rows});
}

}  // namespace sinter::ops
