// Products with one vector whose sums run along the columns of few long rows: a thread walks down its
// columns.
#include <sinter/ops/gemv/plan/column_plan.h>
#include <sinter/ops/gemv/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

/// The sums of columns `column`, column + 1, ...; of which those behind `columns` are not written.
template <class T, class C, int pack>
__device__ __forceinline__ void write_columns(const GemvOutput& output, int64_t matrix, int64_t column,
                                              int64_t columns, const C (&sums)[pack], T* y) {
  T* const to = y + matrix * output.matrix + column * output.element;
  cuda::Pack<T, pack> rounded;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const C bias = column + j < columns ? with_bias<T>(output.bias, sums[j], column + j, 0) : sums[j];
    rounded.values[j] = cuda::round_to<T>(bias);
  }
  if (column + pack <= columns && output.element == 1 && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
    *reinterpret_cast<cuda::Pack<T, pack>*>(to) = rounded;
    return;
  }
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    if (column + j < columns) to[j * output.element] = rounded.values[j];
  }
}

struct FewRows {
  cuda::FastDivide by_tiles;
  int64_t rows, columns;
  int64_t a_stride, x_stride, x_element;
};

/// A pack of a row: where all rows begin at whole units, one of these, else `shifted` from two.
template <bool shifted, class T>
struct RowPack {
  LoadedPack<T, cuda::kPackSize<T>> pack;

  __device__ __forceinline__ void load(const T* from, const T*) { pack.load_once(pack.source(from)); }
  __device__ __forceinline__ auto get() const { return pack; }
};
template <class T>
struct RowPack<true, T> {
  ShiftedPack<T> pack;

  __device__ __forceinline__ void load(const T* from, const T* end) { pack.template load<true>(from, end); }
  __device__ __forceinline__ auto get() const { return pack.get(); }
};

/// Block (matrix and tile) of a FewRowPlan. What a shifted pack holds behind its row is the next row: it gets
/// into sums that are not written. Of rows that begin with units only a single one may end within a unit.
template <bool shifted, int packs, class T>
__global__ void __launch_bounds__(FewRowPlan::kThreads, shifted ? 2 : 3)
    few_rows_kernel(const __grid_constant__ FewRows shape, const __grid_constant__ GemvOutput output,
                    const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y) {
  using C = compute_type<T>;
  constexpr int pack = cuda::kPackSize<T>, at_once = FewRowPlan::kLoads / packs;
  constexpr int64_t step = FewRowPlan::kThreads * pack;
  uint32_t tile;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile);
  const int64_t column = tile * packs * step + int64_t{threadIdx.x} * pack;
  if (column >= shape.columns) return;
  const T* from = a + matrix * shape.a_stride;
  const T* const end = from + shape.rows * shape.columns;
  from += column;
  const auto* with = LoadedPack<T, 1>::source(x + matrix * shape.x_stride);
  const auto has = [&](int64_t row, int i) {
    return row < shape.rows && column + i * step + (shifted ? 0 : pack - 1) < shape.columns;
  };
  C sums[packs][pack] = {};
#pragma unroll 1
  for (int64_t row = 0; row < shape.rows; row += at_once) {
    RowPack<shifted, T> left[at_once][packs];
    LoadedPack<T, 1> factors[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (has(row + u, i)) left[u][i].load(from + u * shape.columns + i * step, end);
      }
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (row + u < shape.rows) factors[u].load(with + u * shape.x_element);
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (!has(row + u, i)) continue;
        const auto elements = left[u][i].get();
#pragma unroll
        for (int j = 0; j < pack; ++j) sums[i][j] += elements[j] * factors[u][0];
      }
    }
    from += at_once * shape.columns;
    with += at_once * shape.x_element;
  }
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int64_t first = column + i * step;
    if (!shifted && first + pack > shape.columns && first < shape.columns) {  // the end of a single row
      const C factor = cuda::load_as_compute(x[matrix * shape.x_stride]);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        if (first + j < shape.columns) {
          sums[i][j] = cuda::load_as_compute(a[matrix * shape.a_stride + first + j]) * factor;
        }
      }
    }
    if (first < shape.columns) write_columns(output, matrix, first, shape.columns, sums[i], y);
  }
}

// ---- host

template <bool shifted, int packs, class T>
void launch_plan(const Stream& stream, const GemvProblem& problem, const FewRowPlan& plan, const T* a,
                 const T* x, T* y, const GemvBias& bias) {
  const FewRows shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                      .rows = problem.rows,
                      .columns = problem.columns,
                      .a_stride = problem.a_stride,
                      .x_stride = problem.x_stride,
                      .x_element = problem.x_element};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles)),
                               .block = dim3(FewRowPlan::kThreads)};
  cuda::launch(stream, grid, few_rows_kernel<shifted, packs, T>, shape, GemvOutput(problem, 1, bias), a, x,
               y);
}

}  // namespace

template <class T>
void launch_few_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                     const GemvBias& bias) {
  constexpr int pack = cuda::kPackSize<T>;
  const bool is_single = problem.rows == 1 && problem.batch == 1;
  const bool whole = is_single ? cuda::is_aligned(a, 16) : pack_of<T>(problem.columns, a) == pack;
  const FewRowPlan plan =
      plan_few_rows(problem.processors, problem.batch, problem.rows, problem.columns, pack);
  const auto launch = [&]<bool shifted, int packs>() {
    launch_plan<shifted, packs>(stream, problem, plan, a, x, y, bias);
  };
  const auto launch_packs = [&]<int packs>() {
    whole ? launch.template operator()<false, packs>() : launch.template operator()<true, packs>();
  };
  if (plan.packs == 4) return launch_packs.template operator()<4>();
  if (plan.packs == 2) return launch_packs.template operator()<2>();
  launch_packs.template operator()<1>();
}

template void launch_few_rows(const Stream&, const GemvProblem&, const float*, const float*, float*,
                              const GemvBias&);
template void launch_few_rows(const Stream&, const GemvProblem&, const double*, const double*, double*,
                              const GemvBias&);
template void launch_few_rows(const Stream&, const GemvProblem&, const float16*, const float16*, float16*,
                              const GemvBias&);
template void launch_few_rows(const Stream&, const GemvProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                              const GemvBias&);

}  // namespace sinter::ops
