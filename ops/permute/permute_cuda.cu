// Permutation on a GPU: a copy; 2-d transposes between the input's last axis and the output's through tiles
// in shared memory; else a gather in the order of the output, in the widest units that the last axis allows.
#include <sinter/core/cuda/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/copy_units_cuda.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/index_divide_cuda.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/permute_plan.h>

namespace sinter::ops {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads: each thread moves kTile / kTileRows elements of a tile
constexpr unsigned kGatherThreads = 256;
// Below this, most lanes of a tile would idle, while the caches catch what a gather reads twice.
constexpr int64_t kSmallestTiled = 16;

/// Axes over which a flat index runs, the last one fastest, and how far each steps in both tensors.
template <class Index>
struct Axes {
  int rank = 0;
  IndexDivide<Index> extents[kMaxRank];
  int64_t input_strides[kMaxRank] = {}, output_strides[kMaxRank] = {};

  void add(int64_t extent, int64_t input_stride, int64_t output_stride) {
    extents[rank] = IndexDivide<Index>(extent);
    input_strides[rank] = input_stride;
    output_strides[rank] = output_stride;
    ++rank;
  }
};

/// The matrices of a transposition: `rows` x `columns` in the input, whose columns are contiguous there and
/// whose rows are contiguous in the output.
template <class Index>
struct Matrices {
  Axes<Index> outer;
  IndexDivide<Index> row_tiles, column_tiles;
  int64_t rows = 1, columns = 1, input_stride = 0, output_stride = 0;
};

template <class Index, class T>
__global__ void transpose_kernel(Index tiles, __grid_constant__ const Matrices<Index> matrices, const T* in,
                                 T* out) {
  __shared__ T tile[kTile][kTile + 1];  // the odd pitch keeps columns on different banks
  for (Index task = blockIdx.x; task < tiles; task += gridDim.x) {
    Index row_tile = 0, column_tile = 0;
    Index rest = matrices.column_tiles.divide(task, column_tile);
    rest = matrices.row_tiles.divide(rest, row_tile);
    const T* from = in;
    T* to = out;
    for (int axis = matrices.outer.rank - 1; axis >= 0; --axis) {
      Index at = 0;
      rest = matrices.outer.extents[axis].divide(rest, at);
      from += static_cast<int64_t>(at) * matrices.outer.input_strides[axis];
      to += static_cast<int64_t>(at) * matrices.outer.output_strides[axis];
    }
    const int64_t first_row = static_cast<int64_t>(row_tile) * kTile;
    const int64_t first_column = static_cast<int64_t>(column_tile) * kTile;
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    for (int r = y; r < kTile; r += kTileRows) {
      if (first_row + r < matrices.rows && first_column + x < matrices.columns) {
        tile[r][x] = from[(first_row + r) * matrices.input_stride + first_column + x];
      }
    }
    __syncthreads();
    for (int c = y; c < kTile; c += kTileRows) {
      if (first_column + c < matrices.columns && first_row + x < matrices.rows) {
        to[(first_column + c) * matrices.output_stride + first_row + x] = tile[x][c];
      }
    }
    __syncthreads();  // before the next tile overwrites this one
  }
}

/// out[i] is the element of `in` at the place that `axes`, those of the output, give i.
template <class Index, class T>
__global__ void gather_kernel(Index count, __grid_constant__ const Axes<Index> axes, const T* in, T* out) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    Index rest = i;
    int64_t from = 0;
    for (int axis = axes.rank - 1; axis >= 0; --axis) {
      Index at = 0;
      rest = axes.extents[axis].divide(rest, at);
      from += static_cast<int64_t>(at) * axes.input_strides[axis];
    }
    out[i] = in[from];
  }
}

int64_t extent_of(const PermutePlan& plan, int output_axis) {
  return plan.extents[static_cast<size_t>(plan.axes[static_cast<size_t>(output_axis)])];
}

int64_t element_count(const PermutePlan& plan) {
  int64_t count = 1;
  for (int axis = 0; axis < plan.rank; ++axis) count *= plan.extents[static_cast<size_t>(axis)];
  return count;
}

/// For plans that move the last axis.
template <class T>
void launch_transpose(const Stream& stream, const PermutePlan& plan, const T* in, T* out) {
  const int row_axis = plan.axes[static_cast<size_t>(plan.rank - 1)];
  const int64_t rows = plan.extents[static_cast<size_t>(row_axis)];
  const int64_t columns = plan.extents[static_cast<size_t>(plan.rank - 1)];
  const int64_t row_tiles = cuda::blocks_for(rows, kTile), column_tiles = cuda::blocks_for(columns, kTile);
  const int64_t tiles = element_count(plan) / (rows * columns) * row_tiles * column_tiles;
  dispatch_index(tiles, [&]<class Index> {
    Matrices<Index> matrices;
    for (int i = 0; i + 1 < plan.rank; ++i) {
      const int axis = plan.axes[static_cast<size_t>(i)];
      if (axis == plan.rank - 1) {
        matrices.output_stride = plan.output_stride(i);
      } else {
        matrices.outer.add(extent_of(plan, i), plan.input_stride(axis), plan.output_stride(i));
      }
    }
    matrices.row_tiles = IndexDivide<Index>(row_tiles);
    matrices.column_tiles = IndexDivide<Index>(column_tiles);
    matrices.rows = rows;
    matrices.columns = columns;
    matrices.input_stride = plan.input_stride(row_axis);
    cuda::LaunchShape shape = cuda::grid_stride_shape(tiles, 1);
    shape.block = dim3(kTile, kTileRows);
    cuda::launch(stream, shape, transpose_kernel<Index, T>, tiles, matrices, in, out);
  });
}

/// `scale` elements of the last axis, which stays in place then, are one T.
template <class T>
void launch_gather(const Stream& stream, const PermutePlan& plan, int64_t scale, const void* in, void* out) {
  const int64_t count = element_count(plan) / scale;
  dispatch_index(count, [&]<class Index> {
    Axes<Index> axes;
    for (int i = 0; i < plan.rank; ++i) {
      const bool last = i == plan.rank - 1;
      const int64_t stride = plan.input_stride(plan.axes[static_cast<size_t>(i)]);
      if (last) {
        axes.add(extent_of(plan, i) / scale, scale == 1 ? stride : 1, 1);
      } else {
        axes.add(extent_of(plan, i), stride / scale, plan.output_stride(i) / scale);
      }
    }
    cuda::launch(stream, cuda::grid_stride_shape(count, kGatherThreads, kGatherThreads),
                 gather_kernel<Index, T>, count, axes, static_cast<const T*>(in), static_cast<T*>(out));
  });
}

void run_permute(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  if (x.numel() == 0) return;
  const auto axes = check_permutation(context.attributes<PermuteAttributes>().axes, x.shape.rank());
  const PermutePlan plan = plan_permute(x.shape, std::span(axes.data(), static_cast<size_t>(x.shape.rank())));
  const auto size = static_cast<int64_t>(size_of(x.dtype));
  if (plan.kind == PermutePlan::Kind::kCopy) {
    const int64_t bytes = x.numel() * size;
    copy_rows_cuda(context.stream(), y.data, bytes, x.data, bytes, bytes, 1);
    return;
  }
  const int row_axis = plan.axes[static_cast<size_t>(plan.rank - 1)];
  const int64_t rows = plan.extents[static_cast<size_t>(row_axis)];
  const int64_t columns = plan.extents[static_cast<size_t>(plan.rank - 1)];
  if (row_axis == plan.rank - 1) {
    const int64_t unit = widest_unit({address_of(x.data), address_of(y.data), columns * size});
    dispatch_unit(unit,
                  [&]<class T> { launch_gather<T>(context.stream(), plan, unit / size, x.data, y.data); });
  } else if (std::min(rows, columns) < kSmallestTiled) {
    dispatch_bits(x.dtype, [&]<class T> { launch_gather<T>(context.stream(), plan, 1, x.data, y.data); });
  } else {
    dispatch_bits(x.dtype,
                  [&]<class T> { launch_transpose(context.stream(), plan, x.as<const T>(), y.as<T>()); });
  }
}

}  // namespace

void register_permute_cuda(OpRegistry& registry);
void register_permute_cuda(OpRegistry& registry) {
  registry.add_kernel("permute", {.device = DeviceType::kCuda, .run = run_permute});
}

}  // namespace sinter::ops
