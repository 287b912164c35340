// Thin products with several vectors whose sums run along rows of some hundred bytes: a warp copies groups of
// rows to shared memory as they lie, and multiplies words from there on tensor cores, wherever rows begin.
#include <climits>

#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/plan/unit_plan.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/staged/split_products_cuda.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>

namespace sinter::ops {
namespace {

constexpr int32_t kStepWords = RowGroupPlan::kStepWords;

struct RowGroups {
  cuda::FastDivide by_blocks;
  int64_t rows, groups;  // of a matrix
  int64_t a_stride, x_stride, x_vector, x_element, y_stride, y_vector;
  int32_t terms, vectors, steps, times, log_step;
  int32_t row_bytes, pitch;  // in memory; in shared memory
  int32_t vector_bytes, stage_bytes, team_bytes;
  bool interleaved;  // y has the vectors of an out side by side; else the outs of a vector
};

/// Rows as they lie, to shared memory: the lanes of a warp or two, a unit of 16 bytes each. Where rows are
/// padded there, they are whole units.
template <class T, int32_t lanes>
struct GroupCopier {
  static constexpr int32_t kBytes = 16 * lanes;

  int32_t row_units, unit, step_units;  // of a row; of it the lane's first, and from one to the next
  uint32_t to, step;

  __device__ __forceinline__ explicit GroupCopier(const RowGroups& shape) {
    const auto lane = static_cast<int32_t>(threadIdx.x % lanes);
    const bool padded = shape.pitch != shape.row_bytes;
    row_units = padded ? shape.row_bytes / 16 : INT_MAX;
    unit = lane % row_units;
    step_units = lanes % row_units;
    to = static_cast<uint32_t>(16 * (lane + lane / row_units));
    step = static_cast<uint32_t>(16 * (lanes + lanes / row_units));
  }
  __device__ __forceinline__ void copy(uintptr_t from, int32_t bytes, uint32_t stage, uint64_t policy) const {
    const auto lane_at = static_cast<int32_t>(threadIdx.x % lanes) * 16;
    int32_t left = bytes - lane_at, at = unit;
    from += static_cast<uintptr_t>(lane_at);
    uint32_t target = stage + to;
#pragma unroll 4
    for (; left >= 16; left -= kBytes) {
      copy_unit<true>(target, from, policy);
      from += kBytes;
      target += step;
      at += step_units;
      if (at >= row_units) {
        at -= row_units;
        target += 16;
      }
    }
    // What fills no unit, as copy_halves has it.
#pragma unroll 1
    for (; left > 0; left -= sizeof(T), from += sizeof(T), target += sizeof(T)) {
      if constexpr (sizeof(T) == 2) {
        asm volatile("st.shared.u16 [%0], %1;"
                     :
                     : "r"(target), "h"(*reinterpret_cast<const uint16_t*>(from))
                     : "memory");
      } else {
        asm volatile("st.shared.u32 [%0], %1;"
                     :
                     : "r"(target), "r"(*reinterpret_cast<const uint32_t*>(from))
                     : "memory");
      }
    }
  }
};

/// What all tiles share: lane 4 g + t has of each step's words t, t + 4, t + 8 and t + 12 of some rows, and
/// of each 8 vectors number g. Rows are chosen such that the words that lanes read together lie in different
/// banks: see PackedTile.
template <bool odd>
struct GroupLane {
  int32_t g = static_cast<int32_t>(threadIdx.x % 32 / 4), t = static_cast<int32_t>(threadIdx.x % 4);

  /// A lane's row number q, less its first one; and the words between them.
  static __device__ __forceinline__ int32_t row_of(const RowGroups& shape, int q) {
    if constexpr (odd) return 2 * (q % 4) + q / 4;
    return (q & ((1 << shape.log_step) - 1)) + (q >> shape.log_step << (shape.log_step + 3));
  }
  static __device__ __forceinline__ int32_t words_to(const RowGroups& shape, int q) {
    if constexpr (odd) return q % 4 * shape.terms + q / 4 * (shape.terms / 2);
    return row_of(shape, q) * (shape.pitch / 4);
  }
  __device__ __forceinline__ int32_t first_row(const RowGroups& shape) const {
    return odd ? 8 * g : g << shape.log_step;
  }
  __device__ __forceinline__ int32_t first_word(const RowGroups& shape) const {
    return t + (odd ? 4 * g * shape.terms : (g << shape.log_step) * (shape.pitch / 4));
  }
};

template <class T, int groups, bool odd, int team>
struct GroupTile;

/// The 16-bit types: a word has two terms. Of an odd number of terms, rows 1, 3, 5 begin in the middle of
/// one, and the vectors are there twice, the second time moved by one element.
template <class T, int groups, bool odd>
requires(sizeof(T) == 2) struct GroupTile<T, groups, odd, 1> {
  static constexpr int kRows = RowGroupPlan::rows_at_once(sizeof(T));
  static constexpr int kSets = kRows / 16, kCopies = odd ? 2 : 1;  // times 16 rows; of the vectors
  static constexpr int32_t kSumLine = HalfSums<kRows>::kLine;
  using Sum = uint16_t;

  float sums[kSets][groups][4];

  /// Four words of a vector: those of a lane in one step.
  static __device__ __forceinline__ uint4 fragment(const RowGroups& shape, const T* x, int32_t v,
                                                   int32_t word, int copy) {
    const ThinVectors<T> from{x, shape.x_vector, shape.x_element, shape.terms, shape.vectors};
    const int32_t term = 2 * word - copy;
    return {from.pair(v, term), from.pair(v, term + 8), from.pair(v, term + 16), from.pair(v, term + 24)};
  }
  static __device__ __forceinline__ uint32_t mask_of(int32_t term, int32_t terms) {
    return (term >= 0 && term < terms ? 0xFFFFU : 0U) | (term + 1 < terms ? 0xFFFF0000U : 0U);
  }

  /// `edge`: the step's words may hold elements of other rows, which become zero.
  template <bool edge>
  __device__ __forceinline__ void step(const RowGroups& shape, const GroupLane<odd>& lane,
                                       const uint32_t* words, const uint4* vectors, int32_t number) {
    uint4 right[kCopies][groups];
    uint32_t masks[kCopies][4];
#pragma unroll
    for (int p = 0; p < kCopies; ++p) {
#pragma unroll
      for (int n = 0; n < groups; ++n) right[p][n] = vectors[(n * kCopies + p) * 32];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (edge) masks[p][i] = mask_of(2 * (kStepWords * number + 4 * i + lane.t) - p, shape.terms);
      }
    }
#pragma unroll
    for (int m = 0; m < kSets; ++m) {
      const int p = odd ? m / 2 : 0;
      const uint32_t *first = words + lane.words_to(shape, 2 * m),
                     *second = words + lane.words_to(shape, 2 * m + 1);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint32_t left[4] = {first[8 * k], second[8 * k], first[8 * k + 4], second[8 * k + 4]};
        if (edge) {
#pragma unroll
          for (int i = 0; i < 4; ++i) left[i] &= masks[p][2 * k + i / 2];
        }
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          const uint4& with = right[p][n];
          if (k == 0) multiply_add<T>(sums[m][n], left, {with.x, with.y});
          if (k == 1) multiply_add<T>(sums[m][n], left, {with.z, with.w});
        }
      }
    }
  }
  __device__ __forceinline__ void end(const RowGroups&, const GroupLane<odd>&, const uint32_t*, const T*,
                                      int32_t) {}

  __device__ __forceinline__ void put(const RowGroups& shape, const GroupLane<odd>& lane, Sum* to) const {
    const int32_t out_step = shape.interleaved ? shape.vectors : 1,
                  vector_step = shape.interleaved ? 1 : kSumLine;
#pragma unroll
    for (int i = 0; i < 2 * kSets; ++i) {
      const int32_t row = lane.first_row(shape) + lane.row_of(shape, i);
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const int32_t v = 8 * n + 2 * lane.t;
        const uint32_t pair = round_pair<T>(sums[i / 2][n][i % 2 * 2], sums[i / 2][n][i % 2 * 2 + 1]);
        Sum* const at = to + row * out_step + v * vector_step;
        if (v < shape.vectors) *at = static_cast<Sum>(pair);
        if (v + 1 < shape.vectors) at[vector_step] = static_cast<Sum>(pair >> 16);
      }
    }
  }
  static __device__ __forceinline__ void write(const RowGroups& shape, const Sum* from, int64_t row,
                                               int32_t count, T* y) {
    auto* const out = reinterpret_cast<uint16_t*>(y);
    if (shape.interleaved) return write_run(from, count * shape.vectors, out + row * shape.vectors);
    write_lines<kRows>(from, shape.vectors, count, out + row, shape.y_vector);
  }
};

/// float32, split in two as SplitTile has it; tensor cores add 16 terms. Sums that are not finite are taken
/// once more, without them.
template <int groups, int team>
struct GroupTile<float, groups, false, team> {
  static constexpr int kRows = RowGroupPlan::rows_at_once(sizeof(float));
  static constexpr int kSets = kRows / 16 / team, kCopies = 2;
  static constexpr int32_t kSumLine = RowGroupPlan::kFloatLine;
  using Sum = float;
  using Lane = GroupLane<false>;

  float sums[kSets][groups][4];
  int32_t first_set = kSets * static_cast<int32_t>(threadIdx.x / 32 % team);  // of the group's

  /// The lane's row of which sum i is, in the order of sums; one of the lane's rows in the order of
  /// GroupLane.
  __device__ __forceinline__ int32_t place_of(int i) const {
    return 2 * (first_set + i / 4 / groups) + i % 4 / 2;
  }

  /// Upper halves of a lane's words, or lower ones.
  static __device__ __forceinline__ uint4 fragment(const RowGroups& shape, const float* x, int32_t v,
                                                   int32_t word, int copy) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t term = word + 4 * i;
      values[i] =
          v < shape.vectors && term < shape.terms ? x[v * shape.x_vector + term * shape.x_element] : 0.0F;
    }
    uint32_t high[4], low[4];
    split_floats(values, high, low);
    return copy == 0 ? uint4{high[0], high[1], high[2], high[3]} : uint4{low[0], low[1], low[2], low[3]};
  }

  template <bool edge>
  __device__ __forceinline__ void step(const RowGroups& shape, const Lane& lane, const uint32_t* words,
                                       const uint4* vectors, int32_t number) {
    uint4 high[groups], low[groups];
#pragma unroll
    for (int n = 0; n < groups; ++n) {
      high[n] = vectors[2 * n * 32];
      low[n] = vectors[(2 * n + 1) * 32];
    }
#pragma unroll
    for (int m = 0; m < kSets; ++m) {
      const uint32_t *first = words + lane.words_to(shape, 2 * (first_set + m)),
                     *second = words + lane.words_to(shape, 2 * (first_set + m) + 1);
      float products[groups][4];
      uint32_t left_high[2][4];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float left[4] = {__uint_as_float(first[8 * k]), __uint_as_float(second[8 * k]),
                         __uint_as_float(first[8 * k + 4]), __uint_as_float(second[8 * k + 4])};
        if (edge) {
          const int32_t behind = shape.terms - (kStepWords * number + 8 * k + lane.t);
#pragma unroll
          for (int i = 0; i < 4; ++i) left[i] = behind > i / 2 * 4 ? left[i] : 0.0F;
        }
        uint32_t left_low[4];
        split_floats(left, left_high[k], left_low);
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          if (k == 0) multiply_tf32(products[n], left_low, {high[n].x, high[n].y});
          if (k == 1) multiply(products[n], left_low, high[n], k);
          multiply(products[n], left_high[k], low[n], k);
        }
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) multiply(products[n], left_high[k], high[n], k);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] += products[n][i];
      }
    }
  }

  __device__ __forceinline__ void end(const RowGroups& shape, const Lane& lane, const uint32_t* words,
                                      const float* x, int32_t count) {
    float zero = 0;  // or NaN
#pragma unroll
    for (int i = 0; i < kSets * groups * 4; ++i) {
      float& sum = sums[i / 4 / groups][i / 4 % groups][i % 4];
      const int32_t row = lane.first_row(shape) + lane.row_of(shape, place_of(i));
      if (row < count) zero = fmaf(sum, 0.0F, zero);
      sum *= SplitFloat::kUnscale;
    }
    if (__any_sync(kThinLanes, zero != 0.0F)) add_plainly(shape, lane, words, x);
  }

  __device__ __forceinline__ void put(const RowGroups& shape, const Lane& lane, Sum* to) const {
    const int32_t out_step = shape.interleaved ? shape.vectors : 1,
                  vector_step = shape.interleaved ? 1 : kSumLine;
#pragma unroll
    for (int i = 0; i < kSets * groups * 4; ++i) {
      const int32_t row = lane.first_row(shape) + lane.row_of(shape, place_of(i));
      const int32_t v = 8 * (i / 4 % groups) + 2 * lane.t + i % 2;
      if (v < shape.vectors)
        to[row * out_step + v * vector_step] = sums[i / 4 / groups][i / 4 % groups][i % 4];
    }
  }
  static __device__ __forceinline__ void write(const RowGroups& shape, const Sum* from, int64_t row,
                                               int32_t count, float* y) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    if (shape.interleaved)
      return write_floats<32 * team>(from, count * shape.vectors, y + row * shape.vectors);
    if (lane >= count) return;
    auto v = static_cast<int32_t>(threadIdx.x / 32 % team);
    float* to = y + row + lane + v * shape.y_vector;
#pragma unroll 2
    for (; v < shape.vectors; v += team, to += team * shape.y_vector) *to = from[v * kSumLine + lane];
  }

 private:
  /// products += left times a lane's words of eight terms, number k.
  static __device__ __forceinline__ void multiply(float (&products)[4], const uint32_t (&left)[4],
                                                  const uint4& right, int k) {
    if (k == 0) multiply_add_tf32(products, left, {right.x, right.y});
    if (k == 1) multiply_add_tf32(products, left, {right.z, right.w});
  }

  __device__ __forceinline__ void add_plainly(const RowGroups& shape, const Lane& lane, const uint32_t* words,
                                              const float* x) {
#pragma unroll
    for (int i = 0; i < kSets * groups * 4; ++i) {
      const int32_t v = 8 * (i / 4 % groups) + 2 * lane.t + i % 2;
      const uint32_t* const row = words - lane.t + lane.words_to(shape, place_of(i));
      float sum = 0;
#pragma unroll 1
      for (int32_t term = 0; v < shape.vectors && term < shape.terms; ++term) {
        sum += __uint_as_float(row[term]) * x[v * shape.x_vector + term * shape.x_element];
      }
      sums[i / 4 / groups][i / 4 % groups][i % 4] = sum;
    }
  }
};

/// Waits for the other warps of a team.
template <int team>
__device__ __forceinline__ void wait_for_team() {
  if constexpr (team == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" : : "r"(1 + threadIdx.x / (32 * team)), "n"(32 * team) : "memory");
  }
}

/// Blocks of a RowGroupPlan: a team takes every so-manieth group of a matrix, of which the next is copied
/// while one is multiplied.
template <class T, int groups, bool odd, int team>
__global__ void __launch_bounds__(RowGroupPlan::kMostThreads, 1)
    row_groups_kernel(const __grid_constant__ RowGroups shape, const T* __restrict__ a,
                      const T* __restrict__ x, T* __restrict__ y) {
  using Tile = GroupTile<T, groups, odd, team>;
  constexpr int32_t at_once = Tile::kRows, kFragments = groups * Tile::kCopies;
  extern __shared__ __align__(16) char group_memory[];
  uint32_t block;
  const uint32_t matrix = shape.by_blocks.divide(blockIdx.x, block);
  const auto number_of_team = static_cast<int32_t>(threadIdx.x / (32 * team)),
             teams = static_cast<int32_t>(blockDim.x / (32 * team));
  char* const stages = group_memory + shape.vector_bytes + number_of_team * shape.team_bytes;
  auto* const sums =
      reinterpret_cast<typename Tile::Sum*>(stages + RowGroupPlan::kStages * shape.stage_bytes);
  const auto stages_at = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const uint64_t policy = leaves_first();
  const auto from = reinterpret_cast<uintptr_t>(a + matrix * shape.a_stride);
  const int32_t group_rows = shape.times * at_once;
  const GroupCopier<T, 32 * team> copier(shape);
  const auto copy = [&](int64_t group, int32_t stage) {
    if (group < shape.groups) {
      const auto rows = static_cast<int32_t>(min(int64_t{group_rows}, shape.rows - group * group_rows));
      copier.copy(from + static_cast<uintptr_t>(group * group_rows * shape.row_bytes), rows * shape.row_bytes,
                  stages_at + static_cast<uint32_t>(stage * shape.stage_bytes), policy);
    }
    end_copy_group();
  };
  const int64_t step = int64_t{shape.by_blocks.divisor()} * teams;
  int64_t group = int64_t{block} * teams + number_of_team;
  copy(group, 0);
  // The vectors, as lanes read them: 16 bytes for each step, 8 vectors and copy.
  const T* const vectors = x + matrix * shape.x_stride;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < shape.steps * kFragments * 32;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t lane = i % 32, fragment = i / 32 % kFragments, number = i / 32 / kFragments;
    reinterpret_cast<uint4*>(group_memory)[i] =
        Tile::fragment(shape, vectors, fragment / Tile::kCopies * 8 + lane / 4,
                       number * kStepWords + lane % 4, fragment % Tile::kCopies);
  }
  __syncthreads();
  const GroupLane<odd> lane;
  const auto* const right = reinterpret_cast<const uint4*>(group_memory) + threadIdx.x % 32;
  T* const out = y + matrix * shape.y_stride;
  const int32_t whole_steps = shape.row_bytes % (kStepWords * 4) == 0 ? shape.steps : shape.steps - 1;
  Tile tile;
#pragma unroll 1
  for (int32_t stage = 0; group < shape.groups; group += step, stage ^= 1) {
    copy(group + step, stage ^ 1);
    wait_for_copies<1>();
    wait_for_team<team>();
    const auto* words =
        reinterpret_cast<const uint32_t*>(stages + stage * shape.stage_bytes) + lane.first_word(shape);
    int64_t row = group * group_rows;
#pragma unroll 1
    for (int32_t time = 0; time < shape.times && row < shape.rows; ++time) {
#pragma unroll
      for (int i = 0; i < Tile::kSets * groups * 4; ++i) tile.sums[i / 4 / groups][i / 4 % groups][i % 4] = 0;
      const auto count = static_cast<int32_t>(min(int64_t{at_once}, shape.rows - row));
      const uint32_t* here = words;
      const uint4* with = right;
      int32_t number = 0;
      const auto advance = [&] {
        ++number;
        here += kStepWords;
        with += kFragments * 32;
      };
      if constexpr (odd) {
        tile.template step<true>(shape, lane, here, with, number);
        advance();
      }
#pragma unroll 2
      while (number < whole_steps) {
        tile.template step<false>(shape, lane, here, with, number);
        advance();
      }
      if (number < shape.steps) tile.template step<true>(shape, lane, here, with, number);
      tile.end(shape, lane, words, vectors, count);
      tile.put(shape, lane, sums);
      wait_for_team<team>();
      Tile::write(shape, sums, row, count, out);
      wait_for_team<team>();  // all are done with the sums, and with the group before its place is copied to
      words += at_once * shape.pitch / 4;
      row += at_once;
    }
  }
}

// ---- host

template <class T, int groups, bool odd, int team>
void launch_plan(const Stream& stream, const ThinProblem& problem, const RowGroupPlan& plan, const T* a,
                 const T* x, T* y) {
  const auto kernel = row_groups_kernel<T, groups, odd, team>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const auto row_bytes = static_cast<int32_t>(problem.columns * static_cast<int64_t>(sizeof(T)));
  const RowGroups shape{.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks)),
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
                        .steps = plan.steps,
                        .times = plan.times,
                        .log_step = plan.log_step,
                        .row_bytes = row_bytes,
                        .pitch = row_bytes + plan.padding,
                        .vector_bytes = plan.vector_bytes,
                        .stage_bytes = plan.stage_bytes,
                        .team_bytes = plan.team_bytes(),
                        .interleaved = problem.y_vector == 1};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.blocks)),
                               .block = dim3(static_cast<unsigned>(32 * team * plan.teams)),
                               .shared_bytes = static_cast<size_t>(plan.shared_bytes())};
  cuda::launch(stream, grid, kernel, shape, a, x, y);
}

template <class T, int groups>
void launch_groups(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const auto block_bytes = static_cast<int>(cuda::device_traits(stream.device.index).most_shared_bytes);
  const RowGroupPlan plan =
      plan_row_groups(sizeof(T), problem.batch, problem.rows, problem.columns, problem.vectors, block_bytes);
  if constexpr (sizeof(T) == 2) {
    if (problem.columns % 2 != 0) return launch_plan<T, groups, true, 1>(stream, problem, plan, a, x, y);
  } else if (plan.team == 2) {
    return launch_plan<T, groups, false, 2>(stream, problem, plan, a, x, y);
  }
  launch_plan<T, groups, false, 1>(stream, problem, plan, a, x, y);
}

}  // namespace

template <class T>
void launch_row_groups(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  if (problem.vectors <= 8) return launch_groups<T, 1>(stream, problem, a, x, y);
  launch_groups<T, 2>(stream, problem, a, x, y);
}

template void launch_row_groups(const Stream&, const ThinProblem&, const float*, const float*, float*);
template void launch_row_groups(const Stream&, const ThinProblem&, const float16*, const float16*, float16*);
template void launch_row_groups(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                bfloat16*);

}  // namespace sinter::ops
