// Thin products with one vector whose sums run along the columns of few long rows.
#include <sinter/ops/matvec/unit_plan.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

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

/// The sums of columns `column`, column + 1, ...; of which those behind `columns` are not written.
template <class T, class C, int pack>
__device__ __forceinline__ void write_columns(const ThinOutput& output, int64_t matrix, int64_t column,
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

/// Block (matrix and tile) of a FewRowPlan. What a shifted pack holds behind its row is the next row: it gets
/// into sums that are not written.
template <bool shifted, int packs, class T>
__global__ void __launch_bounds__(FewRowPlan::kThreads, shifted ? 2 : 3)
    few_rows_kernel(const __grid_constant__ FewRows shape, const __grid_constant__ ThinOutput output,
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
  C sums[packs][pack] = {};
#pragma unroll 1
  for (int64_t row = 0; row < shape.rows; row += at_once) {
    RowPack<shifted, T> left[at_once][packs];
    LoadedPack<T, 1> factors[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (row + u < shape.rows && column + i * step < shape.columns) {
          left[u][i].load(from + u * shape.columns + i * step, end);
        }
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
        if (row + u >= shape.rows || column + i * step >= shape.columns) continue;
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
    if (column + i * step < shape.columns) {
      write_columns(output, matrix, column + i * step, shape.columns, sums[i], y);
    }
  }
}

// ---- host

template <bool shifted, int packs, class T>
void launch_plan(const Stream& stream, const ThinProblem& problem, const FewRowPlan& plan, const T* a,
                 const T* x, T* y, const ThinBias& bias) {
  const FewRows shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                      .rows = problem.rows,
                      .columns = problem.columns,
                      .a_stride = problem.a_stride,
                      .x_stride = problem.x_stride,
                      .x_element = problem.x_element};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles)),
                               .block = dim3(FewRowPlan::kThreads)};
  cuda::launch(stream, grid, few_rows_kernel<shifted, packs, T>, shape, ThinOutput(problem, 1, bias), a, x,
               y);
}

}  // namespace

template <class T>
void launch_few_rows(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                     const ThinBias& bias) {
  constexpr int pack = cuda::kPackSize<T>;
  const FewRowPlan plan = plan_few_rows(problem.rows, problem.columns, pack);
  const bool shifted = pack_of<T>(problem.columns, a) != pack;
  if (plan.packs == 2) {
    return shifted ? launch_plan<true, 2>(stream, problem, plan, a, x, y, bias)
                   : launch_plan<false, 2>(stream, problem, plan, a, x, y, bias);
  }
  return shifted ? launch_plan<true, 1>(stream, problem, plan, a, x, y, bias)
                 : launch_plan<false, 1>(stream, problem, plan, a, x, y, bias);
}

template void launch_few_rows(const Stream&, const ThinProblem&, const float*, const float*, float*,
                              const ThinBias&);
template void launch_few_rows(const Stream&, const ThinProblem&, const double*, const double*, double*,
                              const ThinBias&);
template void launch_few_rows(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                              const ThinBias&);
template void launch_few_rows(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                              const ThinBias&);

}  // namespace sinter::ops
