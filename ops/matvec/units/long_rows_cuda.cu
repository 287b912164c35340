// Thin products with one vector whose sums run along few long rows, wherever these begin.
#include <sinter/ops/matvec/unit_plan.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct LongRows {
  cuda::FastDivide by_rows;
  int64_t columns, part_units;
  int64_t a_stride, x_stride;
};

/// A row's whole units, the vector's elements that they are multiplied with, and the ends.
template <class T>
struct LongRow {
  static constexpr int64_t kPack = cuda::kPackSize<T>;
  using Loaded = LoadedPack<T, kPack>;
  using Source = typename Loaded::Source;

  const Source *units, *factors;
  uint32_t shift;                // bytes that lie in front of a unit's factors in the unit where they begin
  int64_t front, count, behind;  // elements in front of the units, units, the first element behind them

  /// Behind the vector's end nothing is read: where two units hold the last unit's factors, that unit belongs
  /// to the row's end.
  __device__ __forceinline__ LongRow(const T* row, const T* x, int64_t columns) {
    const auto rest = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row)) & 15;
    front = ((16 - rest) & 15) / static_cast<uint32_t>(sizeof(T));
    const auto first_factor = reinterpret_cast<uintptr_t>(x + front);
    shift = static_cast<uint32_t>(first_factor) & 15;
    units = Loaded::source(row + front);
    factors = reinterpret_cast<const Source*>(first_factor - shift);
    count = (columns - front) / kPack - (shift != 0 ? 1 : 0);
    behind = front + count * kPack;
  }

  /// The element of the row's ends that is this thread's, or -1: the first warp has those in front, the
  /// second those behind, fewer than two units.
  __device__ __forceinline__ int64_t end_element(int64_t columns) const {
    const int64_t element = threadIdx.x < 32 ? threadIdx.x : behind + threadIdx.x - 32;
    const bool has = threadIdx.x < 32   ? blockIdx.y == 0 && element < front
                     : threadIdx.x < 64 ? blockIdx.y + 1 == gridDim.y && element < columns
                                        : false;
    return has ? element : -1;
  }
};

/// The sum over units `first` + threadIdx.x and every kThreads-th after it, below `end`.
template <class T>
__device__ __forceinline__ compute_type<T> add_units(const LongRow<T>& row, int64_t first, int64_t end) {
  using C = compute_type<T>;
  constexpr int at_once = LongRowPlan::kAtOnce, pack = cuda::kPackSize<T>;
  constexpr int64_t step = LongRowPlan::kThreads;
  C sums[at_once] = {};
#pragma unroll 1
  for (int64_t unit = first + threadIdx.x; unit < end; unit += at_once * step) {
    typename LongRow<T>::Loaded left[at_once];
    ShiftedPack<T> right[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (unit + u * step < end) left[u].load_once(row.units + unit + u * step);
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      right[u].shift = row.shift;
      if (unit + u * step < end) {
        right[u].low.load(row.factors + unit + u * step);
        if (row.shift != 0) right[u].high.load(row.factors + unit + u * step + 1);
      }
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (unit + u * step >= end) continue;
      const auto factors = right[u].get();
#pragma unroll
      for (int j = 0; j < pack; ++j) sums[u] += left[u][j] * factors[j];
    }
  }
  static_assert(at_once == 4);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Block (row of all matrices, part) of a LongRowPlan.
template <class T>
__global__ void __launch_bounds__(LongRowPlan::kThreads, LongRowPlan::kBlocks)
    long_rows_kernel(const __grid_constant__ LongRows shape, const __grid_constant__ ThinOutput output,
                     const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y,
                     compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  constexpr int warps = LongRowPlan::kThreads / 32;
  __shared__ C shared[warps];
  cuda::let_next_begin();
  uint32_t place;
  const uint32_t matrix = shape.by_rows.divide(blockIdx.x, place);
  const T *from = a + matrix * shape.a_stride + place * shape.columns, *with = x + matrix * shape.x_stride;
  const LongRow<T> row(from, with, shape.columns);
  const int64_t first = blockIdx.y * shape.part_units;
  C sum = add_units(row, first, min(first + shape.part_units, row.count));
  const int64_t end = row.end_element(shape.columns);
  if (end >= 0) sum += cuda::load_as_compute(from[end]) * cuda::load_as_compute(with[end]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kThinLanes, sum, distance);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = shared[0];
#pragma unroll
  for (int warp = 1; warp < warps; ++warp) sum += shared[warp];
  output.write(matrix, place, 0, 1, sum, y, table);
}

}  // namespace

template <class T>
void launch_long_rows(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                      compute_type<T>* table, const ThinBias& bias) {
  const int64_t rows = problem.batch * problem.rows;
  const LongRowPlan plan = plan_long_rows(rows, problem.columns, cuda::kPackSize<T>);
  const LongRows shape{.by_rows = cuda::FastDivide(static_cast<uint32_t>(problem.rows)),
                       .columns = problem.columns,
                       .part_units = plan.part_units,
                       .a_stride = problem.a_stride,
                       .x_stride = problem.x_stride};
  const ThinOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(plan.parts)),
                               .block = dim3(LongRowPlan::kThreads)};
  cuda::launch(stream, grid, long_rows_kernel<T>, shape, output, a, x, y, table);
  fold_thin_parts<T>(stream, problem, output, table, y);
}

template void launch_long_rows(const Stream&, const ThinProblem&, const float*, const float*, float*, float*,
                               const ThinBias&);
template void launch_long_rows(const Stream&, const ThinProblem&, const double*, const double*, double*,
                               double*, const ThinBias&);
template void launch_long_rows(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                               float*, const ThinBias&);
template void launch_long_rows(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                               float*, const ThinBias&);

}  // namespace sinter::ops
