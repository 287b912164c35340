// Thin products whose sums run along the matrix's columns: y = a^T x.
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {
namespace {

struct ColumnSums {
  cuda::FastDivide by_tiles, by_width, by_elements;  // the last: a tile's elements
  uint32_t width, depth;
  int64_t rows, packs, part_rows;
  int64_t a_stride, x_stride, x_vector, x_element;
  int vectors;
};

/// Blocks of a processor that the kernel's registers allow.
template <class T>
constexpr int column_sum_blocks(int pack, int vectors) {
  if (vectors > 1) return 1;
  return pack == cuda::kPackSize<T> ? 2 : 3;
}

/// Block (matrix and tile, part) of a ColumnSumPlan.
template <int pack, int vectors, class T>
__global__ void __launch_bounds__(ColumnSumPlan::kThreads, column_sum_blocks<T>(pack, vectors))
    column_sums_kernel(const __grid_constant__ ColumnSums shape, ThinOutput output, const T* __restrict__ a,
                       const T* __restrict__ x, T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  constexpr int unroll = ColumnSumPlan::kAtOnce;
  __shared__ C shared[ColumnSumPlan::kThreads * pack];
  cuda::let_next_begin();
  uint32_t tile, across;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile),
                 below = shape.by_width.divide(threadIdx.x, across), depth = shape.depth;
  const int64_t column = int64_t{tile} * shape.width + across;
  const int64_t row = blockIdx.y * shape.part_rows;
  const auto rows = static_cast<uint32_t>(min(shape.part_rows, shape.rows - row));
  C sums[vectors][pack] = {};
  if (column < shape.packs && below < depth) {
    const auto* from =
        LoadedPack<T, pack>::source(a + matrix * shape.a_stride) + (row + below) * shape.packs + column;
    const auto* with =
        LoadedPack<T, 1>::source(x + matrix * shape.x_stride) + (row + below) * shape.x_element;
    const int64_t from_step = depth * shape.packs, with_step = depth * shape.x_element;
#pragma unroll 1
    for (uint32_t r = below; r < rows; r += unroll * depth) {
      LoadedPack<T, pack> left[unroll];
      LoadedPack<T, 1> factors[unroll][vectors];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (r + u * depth < rows) left[u].load_once(from + u * from_step);
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          const int64_t vector = v < shape.vectors ? v * shape.x_vector : 0;
          if (r + u * depth < rows) factors[u][v].load(with + u * with_step + vector);
        }
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (r + u * depth >= rows) continue;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
#pragma unroll
          for (int j = 0; j < pack; ++j) sums[v][j] += left[u][j] * factors[u][v][0];
        }
      }
      from += unroll * from_step;
      with += unroll * with_step;
    }
  }
  const uint32_t elements = shape.width * pack;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (below < depth) {
#pragma unroll
      for (int j = 0; j < pack; ++j) shared[below * elements + across * pack + j] = sums[v][j];
    }
    const C sum = cuda::add_columns<ColumnSumPlan::kThreads>(shared, depth, elements, shape.by_elements);
    const int64_t out = int64_t{tile} * elements + threadIdx.x;
    if (threadIdx.x < elements && out < shape.packs * pack && v < shape.vectors) {
      output.write(matrix, out, v, shape.vectors, sum, y, table);
    }
    if (v + 1 < vectors) __syncthreads();
  }
}

// ---- host

template <class T>
struct ColumnSumLaunch {
  const Stream& stream;
  const ThinProblem& problem;
  const T *a, *x;
  T* y;
  compute_type<T>* table;
  ThinBias bias;

  template <int pack, int vectors>
  void run() const {
    const ColumnSumPlan plan = plan_column_sums(problem.batch, problem.rows, problem.columns, pack);
    const ColumnSums shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                           .by_width = cuda::FastDivide(static_cast<uint32_t>(plan.width)),
                           .by_elements = cuda::FastDivide(static_cast<uint32_t>(plan.width * pack)),
                           .width = static_cast<uint32_t>(plan.width),
                           .depth = static_cast<uint32_t>(plan.depth()),
                           .rows = problem.rows,
                           .packs = problem.columns / pack,
                           .part_rows = plan.part_rows,
                           .a_stride = problem.a_stride,
                           .x_stride = problem.x_stride,
                           .x_vector = problem.x_vector,
                           .x_element = problem.x_element,
                           .vectors = problem.vectors};
    const ThinOutput output(problem, plan.parts, bias);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles), static_cast<unsigned>(plan.parts)),
        .block = dim3(ColumnSumPlan::kThreads)};
    cuda::launch(stream, grid, column_sums_kernel<pack, vectors, T>, shape, output, a, x, y, table);
    fold_thin_parts<T>(stream, problem, output, table, y);
  }

  template <int pack>
  void run_vectors() const {
    if (problem.vectors == 1) return run<pack, 1>();
    if (problem.vectors == 2) return run<pack, 2>();
    if (problem.vectors <= 4) return run<pack, 4>();
    run<pack, 8>();
  }
};

}  // namespace

template <class T>
void launch_column_sums(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                        compute_type<T>* table, const ThinBias& bias) {
  constexpr int widest = cuda::kPackSize<T>;
  const ColumnSumLaunch<T> launch{stream, problem, a, x, y, table, bias};
  const int pack = pack_of<T>(problem.columns, a);
  if (pack == widest) return launch.template run_vectors<widest>();
  if constexpr (widest > 2) {
    if (pack >= 2 && problem.vectors == 1) return launch.template run<2, 1>();
  }
  launch.template run_vectors<1>();
}

template void launch_column_sums(const Stream&, const ThinProblem&, const float*, const float*, float*,
                                 float*, const ThinBias&);
template void launch_column_sums(const Stream&, const ThinProblem&, const double*, const double*, double*,
                                 double*, const ThinBias&);
template void launch_column_sums(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                                 float*, const ThinBias&);
template void launch_column_sums(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                 bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
