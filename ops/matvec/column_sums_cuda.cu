// Thin products whose sums run along the matrix's columns: y = a^T x.
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {
namespace {

using cuda::load_as_compute;

struct ColumnSums {
  cuda::FastDivide by_tiles;
  uint32_t log_width;
  int64_t rows, packs, part_rows;
  int64_t a_stride, x_stride, x_vector, x_element;
  int vectors;
};

/// Block (matrix and tile, part) of a ColumnSumPlan.
template <int pack, int vectors, class T>
__global__ void __launch_bounds__(ColumnSumPlan::kThreads)
    column_sums_kernel(ColumnSums shape, ThinOutput output, const T* __restrict__ a, const T* __restrict__ x,
                       T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  constexpr int warps = ColumnSumPlan::kThreads / kThinWarp, unroll = 4;
  __shared__ C shared[warps][kThinWarp * pack];
  const uint32_t width = 1U << shape.log_width, across = threadIdx.x & (width - 1);
  const uint32_t depth = ColumnSumPlan::kThreads >> shape.log_width;
  cuda::let_next_begin();
  uint32_t tile;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile);
  const int64_t column = int64_t{tile} * width + across;
  const int64_t begin = blockIdx.y * shape.part_rows, end = min(begin + shape.part_rows, shape.rows);
  C sums[vectors][pack] = {};
  if (column < shape.packs) {
    const auto* from = reinterpret_cast<const cuda::Pack<T, pack>*>(a + matrix * shape.a_stride) + column;
    const T* with = x + matrix * shape.x_stride;
    for (int64_t i = begin + (threadIdx.x >> shape.log_width); i < end; i += depth * unroll) {
      cuda::Pack<T, pack> left[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (i + u * depth < end) left[u] = load_once(from + (i + u * depth) * shape.packs);
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64_t row = i + u * depth;
        if (row >= end) continue;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          const int64_t used = v < shape.vectors ? v : 0;
          const C factor = load_as_compute(with[used * shape.x_vector + row * shape.x_element]);
#pragma unroll
          for (int j = 0; j < pack; ++j) sums[v][j] += load_as_compute(left[u].values[j]) * factor;
        }
      }
    }
  }
  const uint32_t warp = threadIdx.x / kThinWarp, elements = width * pack;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    // The threads of a warp below each other, then the warps.
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      for (uint32_t distance = kThinWarp / 2; distance >= width; distance /= 2) {
        sums[v][j] += __shfl_xor_sync(kThinLanes, sums[v][j], distance);
      }
      if (threadIdx.x % kThinWarp < width) shared[warp][across * pack + j] = sums[v][j];
    }
    __syncthreads();
    if (threadIdx.x < elements) {
      C sum = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) sum += shared[w][threadIdx.x];
      const int64_t out = int64_t{tile} * elements + threadIdx.x;
      if (out < shape.packs * pack && v < shape.vectors) {
        output.write(matrix, out, v, shape.vectors, sum, y, table);
      }
    }
    __syncthreads();
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
    const ColumnSums shape{
        .by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
        .log_width = static_cast<uint32_t>(std::countr_zero(static_cast<unsigned>(plan.width))),
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
