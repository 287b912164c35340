// Thin products with one vector whose sums run along very few columns that fill no units of 16 bytes.
#include <numeric>
#include <utility>

#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/plan/narrow_column_plan.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {
namespace {

struct NarrowColumns {
  cuda::FastDivide by_parts;
  int64_t rows;
  int64_t a_stride, x_stride;
};

/// A matrix: its rows in front of the first that begins with a unit, its folds of rows from there on, which
/// are whole units, and the vector for these.
template <int columns, class T>
struct NarrowMatrix {
  static constexpr int kPack = cuda::kPackSize<T>, kFold = NarrowColumnPlan::fold(columns, kPack);

  const T *a, *x;
  int64_t front, folds;  // rows; and folds behind them

  __device__ __forceinline__ NarrowMatrix(const NarrowColumns& shape, const T* matrices, const T* vectors,
                                          uint32_t matrix)
      : a(matrices + matrix * shape.a_stride), x(vectors + matrix * shape.x_stride) {
    const auto first = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(a) & 15) / sizeof(T);
    front = 0;
#pragma unroll
    for (int row = kFold - 1; row > 0; --row) {
      if ((first + row * columns) % kPack == 0) front = row;
    }
    if (first == 0) front = 0;
    front = min(front, shape.rows);
    folds = (shape.rows - front) / kFold;
  }

  /// The sum of a column over the rows that are in no fold.
  __device__ __forceinline__ compute_type<T> rest(int64_t rows, int column) const {
    compute_type<T> sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * kFold - 2; ++i) {
      const int64_t row = i < front ? i : i + folds * kFold;
      if (row < rows) sum += cuda::load_as_compute(a[row * columns + column]) * cuda::load_as_compute(x[row]);
    }
    return sum;
  }
};

/// What a lane multiplies a fold with.
template <int fold, class T>
struct FoldFactors {
  static constexpr bool kWide = fold * sizeof(T) >= 4;
  using Wide = LoadedPack<T, fold>;

  T values[fold];

  /// `aligned`: from a multiple of their size on.
  __device__ __forceinline__ void load(const T* from, bool aligned) {
    if constexpr (kWide) {
      if (aligned) {
        Wide loaded;
        loaded.load(Wide::source(from));
        memcpy(values, &loaded.word, sizeof(values));
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < fold; ++i) values[i] = from[i];
  }
};

/// Copies of a warp's next folds, as they lie.
template <int columns, class T>
__device__ __forceinline__ void copy_folds(const NarrowMatrix<columns, T>& matrix, int64_t chunk, uint32_t to,
                                           uint64_t policy) {
  using Cut = NarrowColumnPlan::Cut<columns, cuda::kPackSize<T>>;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int64_t first = chunk * Cut::kFolds;
  if (first >= matrix.folds) return;
  const auto units = static_cast<int32_t>(min(int64_t{Cut::kFolds}, matrix.folds - first)) * Cut::kUnits;
  const uintptr_t from = reinterpret_cast<uintptr_t>(matrix.a + matrix.front * columns) +
                         static_cast<uintptr_t>(first * Cut::kUnits * 16 + 16 * lane);
#pragma unroll
  for (int i = 0; i < Cut::kUnits * Cut::kTimes; ++i) {
    if (lane + 32 * i < units) {
      copy_unit<true>(to + static_cast<uint32_t>(16 * lane + 512 * i), from + 512 * i, policy);
    }
  }
}

/// Adds a fold's products, all of whose places are known: element e of it is in column e % columns.
template <int columns, class T>
__device__ __forceinline__ void add_fold(const char* units, const T* factors,
                                         compute_type<T> (&sums)[columns]) {
  constexpr int kPack = cuda::kPackSize<T>;
  using Loaded = LoadedPack<T, kPack>;
#pragma unroll
  for (int i = 0; i < NarrowColumnPlan::units(columns, kPack); ++i) {
    const Loaded unit{*reinterpret_cast<const typename Loaded::Word*>(units + 16 * i)};
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      sums[(i * kPack + j) % columns] += unit[j] * cuda::load_as_compute(factors[(i * kPack + j) / columns]);
    }
  }
}

/// Block (matrix and part) of a NarrowColumnPlan: its warps take chunks of folds in turn with the matrix's
/// other blocks, and copy ahead.
template <int columns, class T>
__global__ void __launch_bounds__(NarrowColumnPlan::kThreads, 2)
    narrow_columns_kernel(const __grid_constant__ NarrowColumns shape,
                          const __grid_constant__ ThinOutput output, const T* __restrict__ a,
                          const T* __restrict__ x, T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  using Cut = NarrowColumnPlan::Cut<columns, cuda::kPackSize<T>>;
  using Factors = FoldFactors<Cut::kFold, T>;
  constexpr int kWarps = NarrowColumnPlan::kThreads / 32, kStages = Cut::kStages;
  extern __shared__ __align__(16) char narrow_memory[];
  __shared__ C shared[kWarps][columns];
  cuda::let_next_begin();
  const auto warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(threadIdx.x % 32);
  uint32_t part;
  const uint32_t in_batch = shape.by_parts.divide(blockIdx.x, part);
  const NarrowMatrix<columns, T> matrix(shape, a, x, in_batch);
  char* const ring = narrow_memory + warp * kStages * Cut::kStageBytes;
  const auto ring_at = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const uint64_t policy = leaves_first();
  const int64_t step = shape.by_parts.divisor() * kWarps;
  int64_t chunk = int64_t{part} * kWarps + warp;
  const T* const with = matrix.x + matrix.front;
  const bool aligned = (reinterpret_cast<uintptr_t>(with) & (sizeof(T) * Cut::kFold - 1)) == 0;
  Factors next[Cut::kTimes];
  const auto load_factors = [&](int64_t of_chunk) {
#pragma unroll
    for (int i = 0; i < Cut::kTimes; ++i) {
      const int64_t fold = of_chunk * Cut::kFolds + 32 * i + lane;
      if (fold < matrix.folds) next[i].load(with + fold * Cut::kFold, aligned);
    }
  };
#pragma unroll
  for (int s = 0; s + 1 < kStages; ++s) {
    copy_folds(matrix, chunk + s * step, ring_at + s * Cut::kStageBytes, policy);
    end_copy_group();
  }
  load_factors(chunk);
  C rest = 0;
  if (part == 0 && threadIdx.x < columns) rest = matrix.rest(shape.rows, static_cast<int>(threadIdx.x));
  C sums[columns] = {};
  int32_t stage = 0, next_stage = kStages - 1;
#pragma unroll 1
  for (; chunk * Cut::kFolds < matrix.folds; chunk += step) {
    copy_folds(matrix, chunk + (kStages - 1) * step, ring_at + next_stage * Cut::kStageBytes, policy);
    end_copy_group();
    Factors factors[Cut::kTimes];
#pragma unroll
    for (int i = 0; i < Cut::kTimes; ++i) factors[i] = next[i];
    load_factors(chunk + step);
    wait_for_copies<kStages - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Cut::kTimes; ++i) {
      if (chunk * Cut::kFolds + 32 * i + lane < matrix.folds) {
        add_fold<columns, T>(ring + stage * Cut::kStageBytes + (32 * i + lane) * (16 * Cut::kUnits),
                             factors[i].values, sums);
      }
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
    next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    __syncwarp();  // all are done with the chunk before its place is copied to
  }
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sums[c] += __shfl_xor_sync(kThinLanes, sums[c], distance);
    }
    if (lane == 0) shared[warp][c] = sums[c];
  }
  __syncthreads();
  if (threadIdx.x >= columns) return;
  C sum = rest;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += shared[w][threadIdx.x];
  output.write_part(part, in_batch, threadIdx.x, 0, 1, sum, y, table);
}

// ---- host

template <int columns, class T>
void launch_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                    compute_type<T>* table, const ThinBias& bias) {
  using Cut = NarrowColumnPlan::Cut<columns, cuda::kPackSize<T>>;
  const NarrowColumnPlan plan = plan_narrow_columns(problem.batch, problem.rows, columns, cuda::kPackSize<T>);
  const auto kernel = narrow_columns_kernel<columns, T>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const NarrowColumns shape{.by_parts = cuda::FastDivide(static_cast<uint32_t>(plan.parts)),
                            .rows = problem.rows,
                            .a_stride = problem.a_stride,
                            .x_stride = problem.x_stride};
  const ThinOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(problem.batch * plan.parts)),
      .block = dim3(NarrowColumnPlan::kThreads),
      .shared_bytes = static_cast<size_t>(NarrowColumnPlan::kThreads / 32 * Cut::kStages * Cut::kStageBytes)};
  cuda::launch(stream, grid, kernel, shape, output, a, x, y, table);
  fold_thin_parts<T>(stream, problem, output, table, y);
}

}  // namespace

template <class T>
void launch_narrow_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                           compute_type<T>* table, const ThinBias& bias) {
  constexpr int pack = cuda::kPackSize<T>, most = NarrowColumnPlan::most_columns(pack);
  const auto launch = [&]<int columns>() {
    if constexpr (columns % pack != 0) {
      if (columns == problem.columns) launch_columns<columns>(stream, problem, a, x, y, table, bias);
    }
  };
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (launch.template operator()<i + 2>(), ...);
  }
  (std::make_integer_sequence<int, most - 1>());
}

template void launch_narrow_columns(const Stream&, const ThinProblem&, const float*, const float*, float*,
                                    float*, const ThinBias&);
template void launch_narrow_columns(const Stream&, const ThinProblem&, const double*, const double*, double*,
                                    double*, const ThinBias&);
template void launch_narrow_columns(const Stream&, const ThinProblem&, const float16*, const float16*,
                                    float16*, float*, const ThinBias&);
template void launch_narrow_columns(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                    bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
