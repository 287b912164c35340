// Products with one vector whose sums run along few long rows, wherever these begin.
#include <sinter/ops/gemv/plan/row_plan.h>
#include <sinter/ops/gemv/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct LongRows {
  cuda::FastDivide by_groups;
  uint32_t full_groups;  // of a matrix, see LongRowPlan
  int64_t columns;
  int64_t a_stride, x_stride;
};

/// Rows of a matrix, and their units: unit k of each begins `shifts` bytes behind the element where unit k of
/// the vector begins, so its factors lie in units k and k + 1 of the vector.
template <class T, int rows>
struct LongRowGroup {
  static constexpr int64_t kPack = cuda::kPackSize<T>;
  using Loaded = LoadedPack<T, kPack>;
  using Source = typename Loaded::Source;

  const T *first_row, *x;
  int64_t columns;
  uint32_t row_count;  // `rows`, or one less
  const Source *units[rows], *factors;
  uint32_t shifts[rows];
  int64_t front, count;  // elements in front of the vector's units, and units of a row
  bool is_shifted;       // any row

  /// In place of a row that is missing, the one in front of it is read again. Behind the vector's end nothing
  /// is read: where two units hold a row's last factors, that unit belongs to the row's end.
  __device__ __forceinline__ LongRowGroup(const T* from, const T* with, int64_t length, bool is_full)
      : first_row(from), x(with), columns(length), row_count(is_full ? rows : rows - 1) {
    front = bytes_to_unit(x) / kElement;
    factors = Loaded::source(x + front);
    is_shifted = false;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const T* const row = first_row + (r + 1 == rows && !is_full ? r - 1 : r) * columns + front;
      shifts[r] = bytes_to_unit(row);
      units[r] = Loaded::source(row + shifts[r] / kElement);
      is_shifted |= shifts[r] != 0;
    }
    count = (columns - front) / kPack - (is_shifted ? 1 : 0);
  }

  /// The product that is this thread's of rows' ends, fewer than two units each: warp r has those of row r,
  /// half of it in front of the units, the other half behind them.
  __device__ __forceinline__ compute_type<T> end_product() const {
    const uint32_t r = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= row_count) return 0;
    const T* const row = first_row + r * columns;
    const int64_t begin = front + bytes_to_unit(row + front) / kElement;
    const int64_t element = lane < 16 ? lane : begin + count * kPack + lane - 16;
    const bool has =
        lane < 16 ? blockIdx.y == 0 && element < begin : blockIdx.y + 1 == gridDim.y && element < columns;
    return has ? cuda::load_as_compute(row[element]) * cuda::load_as_compute(x[element]) : 0;
  }

 private:
  static constexpr auto kElement = static_cast<uint32_t>(sizeof(T));

  static __device__ __forceinline__ uint32_t bytes_to_unit(const T* from) {
    return (16 - (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from)) & 15)) & 15;
  }
};

/// What a thread has in flight: units of each row, and the vector's for all of them.
template <bool shifted, class T, int rows>
struct LongRowLoads {
  static constexpr int kAtOnce = LongRowPlan::units_at_once(rows);
  using Group = LongRowGroup<T, rows>;
  using Loaded = typename Group::Loaded;

  Loaded left[kAtOnce][rows], low[kAtOnce], high[kAtOnce];

  __device__ __forceinline__ void load(const Group& group, int u, uint32_t unit) {
#pragma unroll
    for (int r = 0; r < rows; ++r) left[u][r].load_once(group.units[r] + unit);
    low[u].load(group.factors + unit);
    if constexpr (shifted) high[u].load(group.factors + unit + 1);
  }

  /// The sum over a unit of a row.
  __device__ __forceinline__ compute_type<T> multiply(const Group& group, int u, int r) const {
    Loaded factors = low[u];
    if constexpr (shifted) factors = ShiftedPack<T>{low[u], high[u], group.shifts[r]}.get();
    compute_type<T> sum = left[u][r][0] * factors[0];
#pragma unroll
    for (int j = 1; j < Group::kPack; ++j) sum += left[u][r][j] * factors[j];
    return sum;
  }
};

/// Adds what units `first` to `end` hold, of which the block takes kThreads, then as many behind those of the
/// other parts, and the ends. The branches keep the compiler from multiplying all units before it loads any
/// of those that follow.
template <bool shifted, class T, int rows>
__device__ __forceinline__ void add_units(LongRowGroup<T, rows> group, int64_t first, int64_t end,
                                          compute_type<T> (&sums)[rows]) {
  using Loads = LongRowLoads<shifted, T, rows>;
  constexpr int at_once = Loads::kAtOnce;
  const uint32_t step = LongRowPlan::kThreads * gridDim.y;
  const uint32_t count = first < end ? static_cast<uint32_t>(end - first) : 0;
  group.factors += first;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    group.units[r] += first;
    // Selecting by what the compiler knows to be the same for all threads takes it more instructions.
    if constexpr (shifted) group.shifts[r] = __shfl_sync(kAllLanes, group.shifts[r], 0);
  }
  Loads loads;
#pragma unroll
  for (int u = 0; u < at_once; ++u) {
    const uint32_t place = threadIdx.x + u * step;
    if (place < count) loads.load(group, u, place);
  }
  const compute_type<T> end_product = group.end_product();  // while units are in flight
#pragma unroll
  for (int r = 0; r < rows; ++r) sums[r] = threadIdx.x / 32 == r ? end_product : 0;
#pragma unroll 1
  for (uint32_t turn = threadIdx.x; turn < count; turn += at_once * step) {
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const uint32_t place = turn + u * step, next = place + at_once * step;
      if (place < count) {
#pragma unroll
        for (int r = 0; r < rows; ++r) sums[r] += loads.multiply(group, u, r);
      }
      if (next < count) loads.load(group, u, next);
    }
  }
}

/// Block (group of all matrices, part) of a LongRowPlan.
template <int rows, class T>
__global__ void __launch_bounds__(LongRowPlan::kThreads, LongRowPlan::kBlocks)
    long_rows_kernel(const __grid_constant__ LongRows shape, const __grid_constant__ GemvOutput output,
                     const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y,
                     compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  constexpr int warps = LongRowPlan::kThreads / 32;
  __shared__ C shared[rows][warps];
  cuda::let_next_begin();
  uint32_t in_matrix;
  const uint32_t matrix = shape.by_groups.divide(blockIdx.x, in_matrix);
  const int64_t place = LongRowPlan::first_row(in_matrix, rows, shape.full_groups);
  const LongRowGroup<T, rows> group(a + matrix * shape.a_stride + place * shape.columns,
                                    x + matrix * shape.x_stride, shape.columns,
                                    in_matrix < shape.full_groups);
  const int64_t first = int64_t{blockIdx.y} * LongRowPlan::kThreads, end = group.count;
  C sums[rows];
  if (group.is_shifted) {
    add_units<true>(group, first, end, sums);
  } else {
    add_units<false>(group, first, end, sums);
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sums[r] += __shfl_xor_sync(kAllLanes, sums[r], distance);
    }
    if (threadIdx.x % 32 == 0) shared[r][threadIdx.x / 32] = sums[r];
  }
  __syncthreads();
  if (threadIdx.x >= group.row_count) return;
  C sum = shared[threadIdx.x][0];
#pragma unroll
  for (int warp = 1; warp < warps; ++warp) sum += shared[threadIdx.x][warp];
  output.write(matrix, place + threadIdx.x, 0, 1, sum, y, table);
}

// ---- host

template <int rows, class T>
void launch_plan(const Stream& stream, const GemvProblem& problem, const LongRowPlan& plan, const T* a,
                 const T* x, T* y, compute_type<T>* table, const GemvOutput& output) {
  const LongRows shape{.by_groups = cuda::FastDivide(static_cast<uint32_t>(plan.groups)),
                       .full_groups = static_cast<uint32_t>(plan.full_groups(problem.rows)),
                       .columns = problem.columns,
                       .a_stride = problem.a_stride,
                       .x_stride = problem.x_stride};
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(problem.batch * plan.groups), static_cast<unsigned>(plan.parts)),
      .block = dim3(LongRowPlan::kThreads)};
  cuda::launch(stream, grid, long_rows_kernel<rows, T>, shape, output, a, x, y, table);
}

}  // namespace

template <class T>
void launch_long_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                      compute_type<T>* table, const GemvBias& bias) {
  const LongRowPlan plan =
      plan_long_rows(problem.processors, problem.batch, problem.rows, problem.columns, cuda::kPackSize<T>);
  const GemvOutput output(problem, plan.parts, bias);
  const auto launch = [&]<int rows>() { launch_plan<rows>(stream, problem, plan, a, x, y, table, output); };
  static_assert(LongRowPlan::kMostGroupRows == 4);
  switch (plan.group_rows) {
    case 1:
      launch.template operator()<1>();
      break;
    case 2:
      launch.template operator()<2>();
      break;
    case 3:
      launch.template operator()<3>();
      break;
    default:
      launch.template operator()<4>();
      break;
  }
  fold_parts<T>(stream, problem, output, table, y);
}

template void launch_long_rows(const Stream&, const GemvProblem&, const float*, const float*, float*, float*,
                               const GemvBias&);
template void launch_long_rows(const Stream&, const GemvProblem&, const double*, const double*, double*,
                               double*, const GemvBias&);
template void launch_long_rows(const Stream&, const GemvProblem&, const float16*, const float16*, float16*,
                               float*, const GemvBias&);
template void launch_long_rows(const Stream&, const GemvProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                               float*, const GemvBias&);

}  // namespace sinter::ops
