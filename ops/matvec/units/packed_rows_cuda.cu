// Thin products with one vector whose sums run along short rows of 16-bit elements that fill no packs of 16
// bytes: loaded one by one they would cost more instructions than memory leaves time for.
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/plan/unit_plan.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct PackedRows {
  cuda::FastDivide by_rows;  // of a matrix, if each has a vector of its own
  int64_t rows, groups;      // of all matrices
  int64_t x_stride;
  int32_t columns, pairs;
};

constexpr int32_t kSlots = PackedRowPlan::kFactorSlots;

/// The two elements of a word.
template <class T>
struct WordPair {
  LoadedPack<T, 2> word;

  __device__ __forceinline__ explicit WordPair(uint32_t from) : word{from} {}
  __device__ __forceinline__ float low() const { return word[0]; }
  __device__ __forceinline__ float high() const { return word[1]; }
};

/// The sums of a lane's two rows of 64, each with its vector. `odd`: of an odd number of columns; the two are
/// neighbours, whose words, the middle one shared, lie in banks of their own. Else they are 32 rows apart. No
/// element gets into the other row's sum.
template <bool odd, class T>
__device__ __forceinline__ void add_two_rows(const uint32_t* words, int32_t columns, const float* of_left,
                                             const float* of_right, float& first, float& second) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t half = columns / 2;  // whole words of a row
  const uint32_t* const left = words + lane * (odd ? columns : half);
  const uint32_t* const right = odd ? left + half + 1 : left + 32 * half;
  first = second = 0;
#pragma unroll 4
  for (int32_t k = 0; k < half; ++k) {
    const WordPair<T> of_first(left[k]), of_second(right[k]);
    const float2 with = *reinterpret_cast<const float2*>(of_left + 2 * k);
    const float2 beside = *reinterpret_cast<const float2*>(of_right + 2 * k);
    first += of_first.low() * with.x;
    first += of_first.high() * with.y;
    second += of_second.low() * (odd ? beside.y : beside.x);
    second += of_second.high() * (odd ? of_right[2 * k + 2] : beside.y);
  }
  if constexpr (odd) {
    const WordPair<T> middle(left[half]);
    first += middle.low() * of_left[columns - 1];
    second += middle.high() * of_right[0];
  }
}

/// The sums of rows `row` and what is behind it of two rows, to y, of `rows` elements. `odd` as above.
template <bool odd, class T>
__device__ __forceinline__ void write_two_rows(const PackedRows& shape, const ThinBias& bias, int64_t row,
                                               float first, float second, T* y) {
  const int64_t next = row + (odd ? 1 : 32);
  if (next < shape.rows) {
    const cuda::Pack<T, 2> pair{{cuda::round_to<T>(with_bias<T>(bias, first, row, 0)),
                                 cuda::round_to<T>(with_bias<T>(bias, second, next, 0))}};
    if (odd && (reinterpret_cast<uintptr_t>(y) & 3) == 0) {
      *reinterpret_cast<cuda::Pack<T, 2>*>(y + row) = pair;
    } else {
      y[row] = pair.values[0];
      y[next] = pair.values[1];
    }
  } else if (row < shape.rows) {
    y[row] = cuda::round_to<T>(with_bias<T>(bias, first, row, 0));
  }
}

/// The vectors of the matrix that a warp's group begins in and of the next one, whose rows a group may have
/// at its end.
template <class T>
struct PackedVectors {
  float* factors;
  uint32_t matrix = ~0U;  // whose vector is there

  __device__ __forceinline__ void load(const PackedRows& shape, uint32_t of, const T* x) {
    if (of == matrix) return;
    matrix = of;
    const bool has_next = int64_t{of + 1} * shape.by_rows.divisor() < shape.rows;
    for (auto i = static_cast<int32_t>(threadIdx.x % 32); i < 2 * kSlots; i += 32) {
      const int32_t next = i / kSlots, term = i % kSlots;
      const bool has = term < shape.columns && (next == 0 || has_next);
      factors[i] = has ? cuda::load_as_compute(x[(of + next) * shape.x_stride + term]) : 0.0F;
    }
    __syncwarp();
  }
};

/// Blocks of a PackedRowPlan: a warp takes every so-manieth group. `batched`: each matrix has a vector of its
/// own, and more rows than a group.
template <bool odd, bool batched, class T>
__global__ void __launch_bounds__(PackedRowPlan::kThreads, PackedRowPlan::kBlocks)
    packed_rows_kernel(const __grid_constant__ PackedRows shape, const ThinBias bias, const T* __restrict__ a,
                       const T* __restrict__ x, T* __restrict__ y) {
  constexpr int32_t warps = PackedRowPlan::kThreads / 32, pair_rows = PackedRowPlan::kPairRows;
  extern __shared__ __align__(16) char packed_memory[];
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  auto* const factors = reinterpret_cast<float*>(packed_memory) + (batched ? 2 * kSlots * warp : 0);
  const int32_t group_rows = shape.pairs * pair_rows, row_bytes = shape.columns * 2;
  const int32_t group_bytes = group_rows * row_bytes;
  char* const stages =
      packed_memory + PackedRowPlan::factor_bytes(batched) + warp * PackedRowPlan::kStages * group_bytes;
  const auto stages_at = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const uint64_t policy = leaves_first();
  const int64_t step = int64_t{gridDim.x} * warps;
  const auto copy = [&](int64_t group, int32_t stage) {
    if (group < shape.groups) {
      const auto rows = static_cast<int32_t>(min(int64_t{group_rows}, shape.rows - group * group_rows));
      copy_halves(reinterpret_cast<uintptr_t>(a) + static_cast<uintptr_t>(group * group_bytes),
                  rows * row_bytes, stages_at + static_cast<uint32_t>(stage * group_bytes), policy);
    }
    end_copy_group();
  };
  int64_t group = int64_t{blockIdx.x} * warps + warp;
  copy(group, 0);
  PackedVectors<T> vectors{factors};
  if constexpr (!batched) {
    if (threadIdx.x < kSlots) {
      const auto term = static_cast<int32_t>(threadIdx.x);
      factors[term] = term < shape.columns ? cuda::load_as_compute(x[term]) : 0.0F;
    }
    __syncthreads();
  }
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t lane_row = odd ? 2 * lane : lane, beside = odd ? 1 : 32;
#pragma unroll 1
  for (int32_t stage = 0; group < shape.groups; group += step, stage ^= 1) {
    copy(group + step, stage ^ 1);
    int32_t matrix_rows = group_rows;  // of the group, that lie in the matrix that it begins in
    if constexpr (batched) {
      uint32_t before;
      vectors.load(shape, shape.by_rows.divide(static_cast<uint32_t>(group * group_rows), before), x);
      matrix_rows =
          static_cast<int32_t>(min(shape.by_rows.divisor() - before, static_cast<uint32_t>(group_rows)));
    }
    wait_for_copies<1>();
    __syncwarp();
    const auto* words = reinterpret_cast<const uint32_t*>(stages + stage * group_bytes);
    int32_t row = lane_row;  // of the group
#pragma unroll 1
    for (int32_t pair = 0; pair < shape.pairs; ++pair) {
      float first, second;
      if (batched && matrix_rows < group_rows) {
        add_two_rows<odd, T>(words, shape.columns, factors + (row < matrix_rows ? 0 : kSlots),
                             factors + (row + beside < matrix_rows ? 0 : kSlots), first, second);
      } else {
        add_two_rows<odd, T>(words, shape.columns, factors, factors, first, second);
      }
      write_two_rows<odd>(shape, bias, group * group_rows + row, first, second, y);
      words += pair_rows / 2 * shape.columns;
      row += pair_rows;
    }
    __syncwarp();  // all are done with the group before its place, or the vectors', is written to
  }
}

template <bool odd, bool batched, class T>
void launch_plan(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                 const ThinBias& bias) {
  const int64_t rows = problem.batch * problem.rows;
  const PackedRowPlan plan = plan_packed_rows(rows, problem.columns, batched);
  const auto kernel = packed_rows_kernel<odd, batched, T>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const PackedRows shape{.by_rows = cuda::FastDivide(batched ? static_cast<uint32_t>(problem.rows) : 1),
                         .rows = rows,
                         .groups = plan.groups,
                         .x_stride = problem.x_stride,
                         .columns = static_cast<int32_t>(problem.columns),
                         .pairs = plan.pairs};
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(plan.blocks)),
      .block = dim3(PackedRowPlan::kThreads),
      .shared_bytes = static_cast<size_t>(PackedRowPlan::shared_bytes(plan.pairs, problem.columns, batched))};
  cuda::launch(stream, grid, kernel, shape, bias, a, x, y);
}

template <bool odd, class T>
void launch_batch(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                  const ThinBias& bias) {
  if (shares_vector(problem)) return launch_plan<odd, false>(stream, problem, a, x, y, bias);
  launch_plan<odd, true>(stream, problem, a, x, y, bias);
}

}  // namespace

template <class T>
void launch_packed_rows(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                        const ThinBias& bias) {
  if (problem.columns % 2 != 0) return launch_batch<true>(stream, problem, a, x, y, bias);
  launch_batch<false>(stream, problem, a, x, y, bias);
}

template void launch_packed_rows(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                                 const ThinBias&);
template void launch_packed_rows(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                 bfloat16*, const ThinBias&);

}  // namespace sinter::ops
