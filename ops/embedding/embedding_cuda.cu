// Table look-up on a GPU, and its gradient for few look-ups, without a sort and without atomics: every block
// owns some rows of the table, finds the positions that read them in rising order, and adds their gradients
// in shared memory. Many are sorted: embedding_grad_cuda.cu. Indices cannot raise errors here: one out of
// range gives NaN (0 for integers), and no gradient.
#include <algorithm>
#include <cstring>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/embedding/embedding_grad_cuda.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// `columns`: units of T in a row.
template <class Index, class T>
__global__ void embedding_kernel(Index count, IndexDivide<Index> divide_columns, int64_t columns,
                                 int64_t rows, T missing, const T* weight, const int64_t* indices, T* y) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    Index column = 0;
    const int64_t row = indices[divide_columns.divide(i, column)];
    const bool known = row >= 0 && row < rows;
    y[i] = known ? weight[row * columns + static_cast<int64_t>(column)] : missing;
  }
}

void copy_rows(const TensorView& weight, const TensorView& indices, const TensorView& y,
               const Stream& stream) {
  if (y.numel() == 0) return;
  const int64_t bytes = weight.shape[1] * static_cast<int64_t>(size_of(weight.dtype));
  const int64_t unit = widest_unit({address_of(weight.data), address_of(y.data), bytes});
  const int64_t columns = bytes / unit;
  const int64_t count = indices.numel() * columns;
  dispatch_unit(unit, [&]<class T> {
    T missing;
    // Bytes of ones are a NaN in every floating-point dtype.
    std::memset(&missing, is_float(weight.dtype) ? 0xff : 0, sizeof(T));
    dispatch_index(count, [&]<class Index> {
      cuda::launch(stream, cuda::grid_stride_shape(count, kThreads, kThreads), embedding_kernel<Index, T>,
                   count, IndexDivide<Index>(columns), columns, weight.shape[0], missing,
                   weight.as<const T>(), indices.as<const int64_t>(), y.as<T>());
    });
  });
}

void run_embedding(const KernelContext& context) {
  copy_rows(context.input(0), context.input(1), context.output(0), context.stream());
}

void run_take_rows(const KernelContext& context) {
  copy_rows(context.input(1), context.input(2), context.input(0), context.stream());
}

constexpr int kGradThreads = 128;  // one column each
constexpr int kGradRows = 32;      // of the table, for each block
constexpr int kScanEach = 8;       // indices that a thread looks at in one go
constexpr int kScan = kGradThreads * kScanEach;
constexpr int kAhead = 8;  // gradients that are loaded before the first is added

/// The matches among the indices [first, first + kScan): their positions relative to `first` times kGradRows
/// plus their row relative to `first_row`, in rising order. Returns their number. For all threads of a block.
__device__ int find_matches(const int64_t* indices, int64_t count, int64_t first, int64_t first_row,
                            int64_t rows, uint32_t* matches) {
  __shared__ int warp_counts[kGradThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  uint32_t found[kScanEach];
  int own = 0;
#pragma unroll
  for (int j = 0; j < kScanEach; ++j) {
    const int offset = thread * kScanEach + j;
    const int64_t row = first + offset < count ? indices[first + offset] - first_row : -1;
    const bool match = row >= 0 && row < kGradRows && first_row + row < rows;
    found[j] = match ? static_cast<uint32_t>(offset) * kGradRows + static_cast<uint32_t>(row) : ~0u;
    own += match ? 1 : 0;
  }
  // This barrier also tells that the matches of the call before have been used.
  if (__syncthreads_or(own) == 0) return 0;
  int before = own;  // inclusive sum over the warp's lanes
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, before, offset);
    if (lane >= offset) before += other;
  }
  if (lane == 31) warp_counts[warp] = before;
  __syncthreads();
  int at = before - own, total = 0;
#pragma unroll
  for (int w = 0; w < kGradThreads / 32; ++w) {
    if (w < warp) at += warp_counts[w];
    total += warp_counts[w];
  }
#pragma unroll
  for (int j = 0; j < kScanEach; ++j) {
    if (found[j] != ~0u) matches[at++] = found[j];
  }
  __syncthreads();
  return total;
}

/// Block (x, y) owns kGradRows rows from row x * kGradRows and, round by round, kGradThreads columns.
template <class T>
__global__ void embedding_grad_kernel(const T* dy, const int64_t* indices, int64_t count, int64_t rows,
                                      int64_t columns, T* dweight) {
  using C = compute_type<T>;
  __shared__ C sums[kGradRows][kGradThreads];
  __shared__ uint32_t matches[kScan];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kGradRows;
  for (int64_t first_column = static_cast<int64_t>(blockIdx.y) * kGradThreads; first_column < columns;
       first_column += static_cast<int64_t>(gridDim.y) * kGradThreads) {
    const int64_t column = first_column + thread;
    const bool inside = column < columns;
    // Each thread reads and writes its own column of the sums only.
    for (int row = 0; row < kGradRows; ++row) sums[row][thread] = C{0};
    for (int64_t first = 0; first < count; first += kScan) {
      const int found = find_matches(indices, count, first, first_row, rows, matches);
      for (int m = 0; inside && m < found; m += kAhead) {
        C gradients[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          gradients[j] =
              m + j < found
                  ? cuda::load_as_compute(dy[(first + matches[m + j] / kGradRows) * columns + column])
                  : C{0};
        }
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          if (m + j < found) sums[matches[m + j] % kGradRows][thread] += gradients[j];
        }
      }
    }
    for (int row = 0; inside && row < kGradRows && first_row + row < rows; ++row) {
      dweight[(first_row + row) * columns + column] = cuda::round_to<T>(sums[row][thread]);
    }
  }
}

void run_embedding_grad(const KernelContext& context) {
  const TensorView& dweight = context.output(0);
  if (dweight.numel() == 0) return;
  const int64_t rows = dweight.shape[0], columns = dweight.shape[1];
  const int64_t across = std::min<int64_t>(cuda::blocks_for(columns, kGradThreads), 65535);
  const cuda::LaunchShape shape{
      dim3(static_cast<unsigned>(cuda::blocks_for(rows, kGradRows)), static_cast<unsigned>(across)),
      dim3(kGradThreads)};
  dispatch_float(dweight.dtype, "embedding_grad", [&]<class T> {
    cuda::launch(context.stream(), shape, embedding_grad_kernel<T>, context.input(0).as<const T>(),
                 context.input(1).as<const int64_t>(), context.input(1).numel(), rows, columns,
                 dweight.as<T>());
  });
}

}  // namespace

void register_embedding_cuda(OpRegistry& registry);
void register_embedding_cuda(OpRegistry& registry) {
  registry.add_kernel("embedding", {.device = DeviceType::kCuda, .run = run_embedding});
  registry.add_kernel("take_rows_", {.device = DeviceType::kCuda, .run = run_take_rows});
  registry.add_kernel("embedding_grad", {.device = DeviceType::kCuda, .run = run_embedding_grad});
  register_sorted_embedding_grad_cuda(registry);
}

}  // namespace sinter::ops
