// Thin products with several vectors whose sums run along short rows of 16-bit elements: rows are copied to
// shared memory as they lie and multiplied on tensor cores from words there, wherever rows begin.
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/plan/unit_plan.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>

namespace sinter::ops {
namespace {

constexpr int32_t kSumLine = HalfSums<PackedProductPlan::kRows>::kLine;

struct PackedProduct {
  cuda::FastDivide by_blocks;
  int64_t rows, groups;  // of a matrix
  int64_t a_stride, x_stride, x_vector, x_element, y_stride, y_vector;
  int32_t terms, vectors, times, log_step, stage_bytes, warp_bytes;
  int32_t out_step, vector_step;  // of sums in shared memory
  bool interleaved;               // y has the vectors of an out side by side; else the outs of a vector
};

/// A lane's part of 16 rows' products at a time. Lane 4 g + t has of each 16 terms those of words t and t + 4
/// of two rows. Rows are chosen such that the words that lanes read together lie in different banks: of an
/// even number of terms every 1, 2 or 4 neighbours; of an odd one all even rows, and all odd ones, which
/// begin in the middle of a word: for these the vectors are moved by one element.
template <class T, int steps, int groups, bool odd>
struct PackedTile {
  static constexpr int kShifts = odd ? 2 : 1;

  uint32_t vectors[kShifts][steps][groups][2];
  uint32_t masks[kShifts][steps][2];  // of what belongs to a row
  int32_t lane_words;                 // from 64 rows' first word to that of the lane's first row

  __device__ __forceinline__ PackedTile(const PackedProduct& shape, const T* x) {
    const ThinVectors<T> from{x, shape.x_vector, shape.x_element, shape.terms, shape.vectors};
    const int32_t g = group(), t = place();
#pragma unroll
    for (int p = 0; p < kShifts; ++p) {
#pragma unroll
      for (int i = 0; i < 2 * steps; ++i) {
        const int32_t term = 8 * i + 2 * t - p;
        masks[p][i / 2][i % 2] = mask_of(term, shape.terms);
#pragma unroll
        for (int n = 0; n < groups; ++n) vectors[p][i / 2][n][i % 2] = from.pair(8 * n + g, term);
      }
    }
    lane_words = odd ? 4 * g * shape.terms + t : (g << shape.log_step) * (shape.terms / 2) + t;
  }

  static __device__ __forceinline__ int32_t group() {
    return static_cast<int32_t>(threadIdx.x % 32 / 4);
  }
  static __device__ __forceinline__ int32_t place() {
    return static_cast<int32_t>(threadIdx.x % 4);
  }
  static __device__ __forceinline__ uint32_t mask_of(int32_t term, int32_t terms) {
    return (term >= 0 && term < terms ? 0xFFFFU : 0U) | (term + 1 < terms ? 0xFFFF0000U : 0U);
  }

  /// A lane's row number q of its 8 of 64, less its first one; and the words between them.
  static __device__ __forceinline__ int32_t row_of(const PackedProduct& shape, int q) {
    if constexpr (odd) return 2 * (q % 4) + q / 4;
    return (q & ((1 << shape.log_step) - 1)) + (q >> shape.log_step << (shape.log_step + 3));
  }
  static __device__ __forceinline__ int32_t words_to(const PackedProduct& shape, int q) {
    if constexpr (odd) return q % 4 * shape.terms + q / 4 * (shape.terms / 2);
    return row_of(shape, q) * (shape.terms / 2);
  }
  __device__ __forceinline__ int32_t first_row(const PackedProduct& shape) const {
    return odd ? 8 * group() : group() << shape.log_step;
  }

  /// What a row's words hold of other rows becomes zero.
  __device__ __forceinline__ uint32_t load(const uint32_t* row, int p, int step, int half) const {
    const uint32_t word = row[8 * step + 4 * half];
    const bool may_have_others = step >= steps / 2 || (p == 1 && step == 0 && half == 0);
    return may_have_others ? word & masks[p][step][half] : word;
  }

  /// Rows 2 j and 2 j + 1 of a lane's 8; `words`: of the 64 rows.
  __device__ __forceinline__ void multiply(const PackedProduct& shape, const uint32_t* words, int j,
                                           float (&sums)[groups][4]) const {
    const int p = odd ? j / 2 : 0;
    const uint32_t *first = words + lane_words + words_to(shape, 2 * j),
                   *second = words + lane_words + words_to(shape, 2 * j + 1);
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const uint32_t left[4] = {load(first, p, s, 0), load(second, p, s, 0), load(first, p, s, 1),
                                load(second, p, s, 1)};
#pragma unroll
      for (int n = 0; n < groups; ++n) multiply_add<T>(sums[n], left, vectors[p][s][n]);
    }
  }

  /// Their sums, rounded, to shared memory.
  __device__ __forceinline__ void put(const PackedProduct& shape, const float (&sums)[groups][4], int j,
                                      uint16_t* to) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t row = first_row(shape) + row_of(shape, 2 * j + i);
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const int32_t v = 8 * n + 2 * place();
        const uint32_t pair = round_pair<T>(sums[n][2 * i], sums[n][2 * i + 1]);
        uint16_t* const at = to + row * shape.out_step + v * shape.vector_step;
        if (v < shape.vectors) *at = static_cast<uint16_t>(pair);
        if (v + 1 < shape.vectors) at[shape.vector_step] = static_cast<uint16_t>(pair >> 16);
      }
    }
  }
};

/// Blocks of a PackedProductPlan: a warp takes every so-manieth group of a matrix, of which the next is
/// copied while one is multiplied.
template <class T, int steps, int groups, bool odd>
__global__ void __launch_bounds__(PackedProductPlan::kThreads, PackedProductPlan::blocks_at_once(steps))
    packed_products_kernel(const __grid_constant__ PackedProduct shape, const T* __restrict__ a,
                           const T* __restrict__ x, T* __restrict__ y) {
  constexpr int32_t warps = PackedProductPlan::kThreads / 32, rows_at_once = PackedProductPlan::kRows;
  extern __shared__ __align__(16) char packed_memory[];
  uint32_t block;
  const uint32_t matrix = shape.by_blocks.divide(blockIdx.x, block);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  char* const stages = packed_memory + warp * shape.warp_bytes;
  auto* const sums = reinterpret_cast<uint16_t*>(stages + PackedProductPlan::kStages * shape.stage_bytes);
  const auto stages_at = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const uint64_t policy = leaves_first();
  const auto from = reinterpret_cast<uintptr_t>(a + matrix * shape.a_stride);
  const int32_t group_rows = shape.times * rows_at_once;
  const auto copy = [&](int64_t group, int32_t stage) {
    if (group < shape.groups) {
      const auto rows = static_cast<int32_t>(min(int64_t{group_rows}, shape.rows - group * group_rows));
      copy_halves(from + static_cast<uintptr_t>(group * shape.stage_bytes), rows * shape.terms * 2,
                  stages_at + static_cast<uint32_t>(stage * shape.stage_bytes), policy);
    }
    end_copy_group();
  };
  const int64_t step = int64_t{shape.by_blocks.divisor()} * warps;
  int64_t group = int64_t{block} * warps + warp;
  copy(group, 0);
  const PackedTile<T, steps, groups, odd> tile(shape, x + matrix * shape.x_stride);
  auto* const out = reinterpret_cast<uint16_t*>(y + matrix * shape.y_stride);
#pragma unroll 1
  for (int32_t stage = 0; group < shape.groups; group += step, stage ^= 1) {
    copy(group + step, stage ^ 1);
    wait_for_copies<1>();
    __syncwarp();
    const auto* words = reinterpret_cast<const uint32_t*>(stages + stage * shape.stage_bytes);
    int64_t row = group * group_rows;
#pragma unroll 1
    for (int32_t time = 0; time < shape.times && row < shape.rows; ++time) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float products[groups][4] = {};
        tile.multiply(shape, words, j, products);
        tile.put(shape, products, j, sums);
      }
      __syncwarp();
      const auto count = static_cast<int32_t>(min(int64_t{rows_at_once}, shape.rows - row));
      if (shape.interleaved) {
        write_run(sums, count * shape.vectors, out + row * shape.vectors);
      } else {
        write_lines<PackedProductPlan::kRows>(sums, shape.vectors, count, out + row, shape.y_vector);
      }
      __syncwarp();  // all are done with the sums, and with the group before its place is copied to
      words += rows_at_once / 2 * shape.terms;
      row += rows_at_once;
    }
  }
}

// ---- host

template <class T, int steps, int groups, bool odd>
void launch_plan(const Stream& stream, const ThinProblem& problem, const PackedProductPlan& plan, const T* a,
                 const T* x, T* y) {
  const auto kernel = packed_products_kernel<T, steps, groups, odd>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const bool interleaved = problem.y_vector == 1;
  const PackedProduct shape{.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks)),
                            .rows = problem.rows,
                            .groups = plan.groups,
                            .a_stride = problem.a_stride,
                            .x_stride = problem.x_stride,
                            .x_vector = problem.x_vector,
                            .x_element = problem.x_element,
                            .y_stride = problem.rows * problem.vectors,
                            .y_vector = problem.y_vector,
                            .terms = static_cast<int32_t>(problem.columns),
                            .vectors = problem.vectors,
                            .times = plan.times,
                            .log_step = plan.log_step,
                            .stage_bytes = plan.stage_bytes,
                            .warp_bytes = plan.warp_bytes(),
                            .out_step = interleaved ? problem.vectors : 1,
                            .vector_step = interleaved ? 1 : kSumLine,
                            .interleaved = interleaved};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.blocks)),
                               .block = dim3(PackedProductPlan::kThreads),
                               .shared_bytes = static_cast<size_t>(plan.shared_bytes())};
  cuda::launch(stream, grid, kernel, shape, a, x, y);
}

template <class T, int steps, int groups>
void launch_steps(const Stream& stream, const ThinProblem& problem, const PackedProductPlan& plan, const T* a,
                  const T* x, T* y) {
  if (problem.columns % 2 != 0) return launch_plan<T, steps, groups, true>(stream, problem, plan, a, x, y);
  launch_plan<T, steps, groups, false>(stream, problem, plan, a, x, y);
}

template <class T, int groups>
void launch_groups(const Stream& stream, const ThinProblem& problem, const PackedProductPlan& plan,
                   const T* a, const T* x, T* y) {
  if (plan.steps == 1) return launch_steps<T, 1, groups>(stream, problem, plan, a, x, y);
  if (plan.steps == 2) return launch_steps<T, 2, groups>(stream, problem, plan, a, x, y);
  launch_steps<T, 4, groups>(stream, problem, plan, a, x, y);
}

}  // namespace

template <class T>
void launch_packed_products(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const PackedProductPlan plan =
      plan_packed_products(problem.batch, problem.rows, problem.columns, problem.vectors);
  if (problem.vectors <= 8) return launch_groups<T, 1>(stream, problem, plan, a, x, y);
  launch_groups<T, 2>(stream, problem, plan, a, x, y);
}

template void launch_packed_products(const Stream&, const ThinProblem&, const float16*, const float16*,
                                     float16*);
template void launch_packed_products(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                     bfloat16*);

}  // namespace sinter::ops
