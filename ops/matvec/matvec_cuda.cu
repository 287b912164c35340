// Kernels of matvec and outer. All are bound by memory: the matrix is read, or written, once, coalesced.
#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/matmul/batch.h>
#include <sinter/ops/matmul/batch_runs.h>
#include <sinter/ops/matvec/matvec.h>

namespace sinter::ops {
namespace {

using cuda::load_as_compute;

constexpr int kWarp = 32;
constexpr int kRowsPerBlock = 8;  // warps of a block, each with a row of its own
constexpr int kPartRows = 8;      // threads that share a column
constexpr int64_t kWantedBlocks = 512;
constexpr int64_t kLeastPart = 64;  // rows of a part below which splitting does not pay

/// A run of (rows, columns) matrices with their vectors; strides in elements, 0 for one that all share.
struct Batch {
  int64_t count, rows, columns, a_stride, x_stride;
};

/// y[i] = sum over j of a[i, j] x[j]: a warp for each row, `pack` elements a load.
template <class T, int pack>
__global__ void rows_kernel(Batch batch, const T* a, const T* x, T* y) {
  using Loaded = cuda::Pack<T, pack>;
  const int64_t all_rows = batch.count * batch.rows;
  const int64_t packs = batch.columns / pack;
  const int lane = threadIdx.x;
  // A warp's lanes have the same rows, so all of them take part in its shuffles.
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y; row < all_rows;
       row += static_cast<int64_t>(gridDim.x) * kRowsPerBlock) {
    const int64_t item = row / batch.rows;
    const auto* from = reinterpret_cast<const Loaded*>(a + item * batch.a_stride +
                                                       (row - item * batch.rows) * batch.columns);
    const auto* with = reinterpret_cast<const Loaded*>(x + item * batch.x_stride);
    compute_type<T> sum = 0;
#pragma unroll 4
    for (int64_t i = lane; i < packs; i += kWarp) {
      const Loaded left = from[i], right = with[i];
#pragma unroll
      for (int j = 0; j < pack; ++j)
        sum += load_as_compute(left.values[j]) * load_as_compute(right.values[j]);
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
    }
    if (lane == 0) y[row] = cuda::round_to<T>(sum);
  }
}

/// y[j] = sum over i of a[i, j] x[i], for the part blockIdx.y of the rows: a block for 32 columns of one
/// matrix. Part p of item b goes to sums[p, b, j].
template <class T, class Sum>
__global__ void columns_kernel(Batch batch, int64_t column_blocks, int64_t part_rows, const T* a, const T* x,
                               Sum* sums) {
  using C = compute_type<T>;
  __shared__ C shared[kPartRows][kWarp + 1];
  const int64_t item = blockIdx.x / column_blocks;
  const int64_t column = blockIdx.x % column_blocks * kWarp + threadIdx.x;
  const int64_t begin = blockIdx.y * part_rows;
  const int64_t end = min(begin + part_rows, batch.rows);
  C sum = 0;
  if (column < batch.columns) {
    const T* from = a + item * batch.a_stride + column;
    const T* with = x + item * batch.x_stride;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.y; i < end; i += kPartRows) {
      sum += load_as_compute(from[i * batch.columns]) * load_as_compute(with[i]);
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= batch.columns) return;
#pragma unroll
  for (int i = 1; i < kPartRows; ++i) sum += shared[i][threadIdx.x];
  sums[(blockIdx.y * batch.count + item) * batch.columns + column] = cuda::round_to<Sum>(sum);
}

/// y[i] = sum over p of sums[p, i], in order.
template <class T, class C>
__global__ void add_parts_kernel(int64_t count, int64_t parts, const C* sums, T* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    C sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += sums[p * count + i];
    y[i] = cuda::round_to<T>(sum);
  }
}

/// y[b, i, j] = u[b, i] v[b, j].
template <class T>
__global__ void outer_kernel(Batch batch, const T* u, const T* v, T* y) {
  const int64_t all_rows = batch.count * batch.rows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y; row < all_rows;
       row += static_cast<int64_t>(gridDim.x) * kRowsPerBlock) {
    const int64_t item = row / batch.rows;
    const auto factor = load_as_compute(u[item * batch.a_stride + row - item * batch.rows]);
    const T* with = v + item * batch.x_stride;
    T* to = y + row * batch.columns;
    for (int64_t j = threadIdx.x; j < batch.columns; j += kWarp) {
      to[j] = cuda::round_to<T>(factor * load_as_compute(with[j]));
    }
  }
}

// ---- host

cuda::LaunchShape one_warp_per_row(int64_t rows) {
  auto shape = cuda::grid_stride_shape(rows, kRowsPerBlock);
  shape.block = dim3(kWarp, kRowsPerBlock);
  return shape;
}

/// Into how many parts the rows are cut when columns are summed, so that there are blocks enough. Depends on
/// shapes alone.
int64_t parts_of(int64_t items, int64_t rows, int64_t columns) {
  const int64_t blocks = std::max<int64_t>(1, items * cuda::blocks_for(columns, kWarp));
  return std::clamp<int64_t>(kWantedBlocks / blocks, 1, std::max<int64_t>(1, rows / kLeastPart));
}

/// The most items that one launch takes, so that there are fewer than 2^31 blocks.
constexpr int64_t most_items(int64_t columns) {
  return std::max<int64_t>(1, (int64_t{1} << 30) / cuda::blocks_for(std::max<int64_t>(columns, 1), kWarp));
}

template <class T>
void launch_rows(const Stream& stream, const Batch& batch, const T* a, const T* x, T* y) {
  constexpr int pack = cuda::kPackSize<T>;
  const auto shape = one_warp_per_row(batch.count * batch.rows);
  if (batch.columns % pack == 0 && cuda::is_aligned(a, 16) && cuda::is_aligned(x, 16)) {
    cuda::launch(stream, shape, rows_kernel<T, pack>, batch, a, x, y);
  } else {
    cuda::launch(stream, shape, rows_kernel<T, 1>, batch, a, x, y);
  }
}

template <class T>
void launch_columns(const Stream& stream, const Batch& batch, const T* a, const T* x, T* y, void* workspace) {
  using C = compute_type<T>;
  const int64_t column_blocks = cuda::blocks_for(batch.columns, kWarp);
  const int64_t parts = parts_of(batch.count, batch.rows, batch.columns);
  const int64_t part_rows = cuda::blocks_for(batch.rows, parts);
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(batch.count * column_blocks), static_cast<unsigned>(parts)),
      .block = dim3(kWarp, kPartRows)};
  if (parts == 1) {
    cuda::launch(stream, shape, columns_kernel<T, T>, batch, column_blocks, part_rows, a, x, y);
    return;
  }
  auto* const sums = static_cast<C*>(workspace);
  cuda::launch(stream, shape, columns_kernel<T, C>, batch, column_blocks, part_rows, a, x, sums);
  const int64_t count = batch.count * batch.columns;
  cuda::launch(stream, cuda::grid_stride_shape(count, 256), add_parts_kernel<T, C>, count, parts, sums, y);
}

/// Calls `body(run)` for the runs of a matvec call; Call is KernelQuery or KernelContext.
template <class Call, class Body>
void for_each_matvec_run(const Call& call, Body&& body) {
  const Shape& a = call.input(0).shape;
  for_each_batch_run(batch_shape(call.output(0).shape, 1), batch_shape(a, 2),
                     batch_shape(call.input(1).shape, 1), body, most_items(a[-1]));
}

size_t matvec_workspace(const KernelQuery& query) {
  if (!query.attributes<MatvecAttributes>().transpose_a || query.output(0).shape.numel() == 0) return 0;
  const Shape& a = query.input(0).shape;
  int64_t most = 0;
  for_each_matvec_run(query, [&](const BatchRun& run) {
    const int64_t parts = parts_of(run.count, a[-2], a[-1]);
    if (parts > 1) most = std::max(most, parts * run.count * a[-1]);
  });
  return static_cast<size_t>(most) * size_of(accumulate_dtype(query.input(0).dtype));
}

void run_matvec(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const bool transpose = context.attributes<MatvecAttributes>().transpose_a;
  const int64_t rows = context.input(0).shape[-2], columns = context.input(0).shape[-1];
  const int64_t in = transpose ? rows : columns, out = transpose ? columns : rows;
  dispatch_float(context.input(0).dtype, "matvec", [&]<class T> {
    for_each_matvec_run(context, [&](const BatchRun& run) {
      const Batch batch{run.count, rows, columns, run.a_step * rows * columns, run.b_step * in};
      const T* a = context.input(0).as<const T>() + run.a * rows * columns;
      const T* x = context.input(1).as<const T>() + run.b * in;
      T* y = context.output(0).as<T>() + run.first * out;
      if (transpose) {
        launch_columns(context.stream(), batch, a, x, y, context.workspace());
      } else {
        launch_rows(context.stream(), batch, a, x, y);
      }
    });
  });
}

void run_outer(const KernelContext& context) {
  const Shape& y_shape = context.output(0).shape;
  if (y_shape.numel() == 0) return;
  const int64_t rows = y_shape[-2], columns = y_shape[-1];
  dispatch_float(context.input(0).dtype, "outer", [&]<class T> {
    for_each_batch_run(batch_shape(y_shape, 2), batch_shape(context.input(0).shape, 1),
                       batch_shape(context.input(1).shape, 1), [&](const BatchRun& run) {
                         const Batch batch{run.count, rows, columns, run.a_step * rows, run.b_step * columns};
                         cuda::launch(context.stream(), one_warp_per_row(run.count * rows), outer_kernel<T>,
                                      batch, context.input(0).as<const T>() + run.a * rows,
                                      context.input(1).as<const T>() + run.b * columns,
                                      context.output(0).as<T>() + run.first * rows * columns);
                       });
  });
}

}  // namespace

void register_matvec_cuda(OpRegistry& registry);
void register_matvec_cuda(OpRegistry& registry) {
  registry.add_kernel("matvec", {.device = DeviceType::kCuda,
                                 .name = "warp_per_row",
                                 .workspace_bytes = matvec_workspace,
                                 .run = run_matvec});
  registry.add_kernel("outer", {.device = DeviceType::kCuda, .run = run_outer});
}

}  // namespace sinter::ops
