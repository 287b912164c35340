// What the kernels of products along long rows share (row_products_cuda.cu, row_products_by_lines_cuda.cu): a
// warp's sums, which it takes from steps of its rows and vectors in shared memory. For .cu files.
//
// Lane 4 g + t multiplies units t and 4 + t of rows g and g + 8 with the same units of vector g. Which terms
// an instruction calls neighbours does not matter as long as both operands mean the same.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/staged/split_products_cuda.h>
#include <sinter/ops/matvec/units/row_vectors_cuda.h>

namespace sinter::ops {

/// Ones in the bits of those of a unit's elements, the first of which is `term`, that lie in a row.
template <class T>
__device__ __forceinline__ uint4 bits_in_row(int64_t term, int64_t terms) {
  uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      words[w] = term + w >= 0 && term + w < terms ? ~0U : 0U;
    } else {
      const int64_t at = term + 2 * w;
      words[w] = (at >= 0 && at < terms ? 0xFFFFU : 0U) | (at + 1 >= 0 && at + 1 < terms ? 0xFFFF0000U : 0U);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

__device__ __forceinline__ uint4 masked_unit(const uint4& a, const uint4& b) {
  return {a.x & b.x, a.y & b.y, a.z & b.z, a.w & b.w};
}

/// The sums of a warp's 16 `sets` rows and 8 `groups` vectors.
template <class T, int sets, int groups, bool dense>
struct RowTile {
  static constexpr int32_t kRows = 16 * sets, kSlots = 8 * groups;
  static constexpr int32_t kPer = 16 / static_cast<int32_t>(sizeof(T)), kTerms = 8 * kPer;
  using Vectors = RowVectors<T, groups, dense>;
  static constexpr int32_t kLeftBytes = kRows * RowProductPlan::kStepBytes,
                           kStageBytes = kLeftBytes + Vectors::kBytes;
  static constexpr int32_t kStages = RowProductPlan::stages(sets);
  static constexpr int32_t kWarpBytes = kStages * kStageBytes + kRows * kSlots * 4;  // with the sums
  static constexpr int32_t kLineStages = kStages + 1;  // the last begins where the one before ends
  static constexpr int32_t kLineWarpBytes = kLineStages * kLeftBytes + kStages * Vectors::kBytes;

  float sums[sets][groups][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) sums[i / 4 / groups][i / 4 % groups][i % 4] = 0;
  }

  /// What a lane multiplies units k of its vectors with, in the order of `multiply`.
  struct Right {
    uint32_t high[groups][2][2], low[groups][2][2];  // of an instruction, of float32's small halves

    __device__ __forceinline__ void set(int n, const uint4& unit) {
      const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (sizeof(T) == 4) {
          SplitFloat halves;
          halves.split(__uint_as_float(words[w]));
          high[n][w / 2][w % 2] = halves.high;
          low[n][w / 2][w % 2] = halves.low;
        } else {
          high[n][w / 2][w % 2] = words[w];
        }
      }
    }
  };

  /// sums += units of rows g and g + 8 times those of vectors. float32 as SplitTile has it: sums of 16 terms,
  /// the small products first.
  __device__ __forceinline__ void multiply(float (&to)[groups][4], const uint4& first, const uint4& second,
                                           const Right& right) {
    const uint32_t units[2][4] = {{first.x, second.x, first.y, second.y},
                                  {first.z, second.z, first.w, second.w}};
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) multiply_add<T>(to[n], units[j], right.high[n][j]);
      }
    } else {
      uint32_t high[2][4], low[2][4];
      float products[groups][4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          SplitFloat halves;
          halves.split(__uint_as_float(units[j][i]));
          high[j][i] = halves.high;
          low[j][i] = halves.low;
        }
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          if (j == 0) {
            multiply_tf32(products[n], low[j], right.high[n][j]);
          } else {
            multiply_add_tf32(products[n], low[j], right.high[n][j]);
          }
          multiply_add_tf32(products[n], high[j], right.low[n][j]);
        }
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) multiply_add_tf32(products[n], high[j], right.high[n][j]);
#pragma unroll
        for (int i = 0; i < 4; ++i) to[n][i] += products[n][i];
      }
    }
  }

  /// A step in shared memory, which begins with term `first`.
  __device__ __forceinline__ void add_step(const RowProduct& shape, const char* left, const char* right,
                                           const typename Vectors::Reader& reader, int64_t first) {
    if (first < 0 || first + kTerms > shape.terms) return add<true>(shape, left, right, reader, first);
    add<false>(shape, left, right, reader, first);
  }
  /// `edge`: its units may hold what is no element of the row, which becomes zero.
  template <bool edge>
  __device__ __forceinline__ void add(const RowProduct& shape, const char* left, const char* vectors,
                                      const typename Vectors::Reader& reader, int64_t first) {
    const int32_t g = row_lane_g(), t = row_lane_t();
    const char* const rows = left + g * RowProductPlan::kStepBytes;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint4 inside{};
      if (edge) inside = bits_in_row<T>(first + (4 * k + t) * kPer, shape.terms);
      Right right;
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const uint4 unit = reader.load(shape, vectors, k, n);
        right.set(n, edge ? masked_unit(unit, inside) : unit);
      }
      const int32_t at = ((4 * k + t) ^ (g % 2 * 4)) * 16;
#pragma unroll
      for (int m = 0; m < sets; ++m) {
        uint4 unit[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          unit[i] =
              *reinterpret_cast<const uint4*>(rows + (16 * m + 8 * i) * RowProductPlan::kStepBytes + at);
          if (edge) unit[i] = masked_unit(unit[i], inside);
        }
        multiply(sums[m], unit[0], unit[1], right);
      }
    }
  }

  /// Sum i of tile rows 16 m .. 16 m + 15 and vectors 8 n .. 8 n + 7.
  static __device__ __forceinline__ int32_t row_of(int m, int i) {
    return 16 * m + row_lane_g() + i / 2 * 8;
  }
  static __device__ __forceinline__ int32_t vector_of(int n, int i) {
    return 8 * n + 2 * row_lane_t() + i % 2;
  }

  /// The sums as they are. Those of float32 that are not finite (an infinity times a low half that is zero,
  /// or what overflows when scaled) are taken again, without tensor cores.
  __device__ __forceinline__ void finish(const RowProduct& shape, const RowTilePlace& place, const T* a,
                                         const T* x, int32_t behind, int32_t first_step, int32_t last_step,
                                         int32_t round) {
    if constexpr (sizeof(T) == 4) {
      float zero = 0;  // or NaN
#pragma unroll
      for (int i = 0; i < sets * groups * 4; ++i) {
        const int m = i / 4 / groups;
        if (row_of(m, i % 4) < place.count) zero = fmaf(sums[m][i / 4 % groups][i % 4], 0.0F, zero);
      }
      const bool again = __any_sync(kThinLanes, zero != 0.0F);
#pragma unroll
      for (int i = 0; i < sets * groups * 4; ++i) {
        const int m = i / 4 / groups, n = i / 4 % groups;
        float& sum = sums[m][n][i % 4];
        sum = again ? plain_sum(shape, a, x, place, row_of(m, i % 4), vector_of(n, i % 4), behind, first_step,
                                last_step, round)
                    : sum * SplitFloat::kUnscale;
      }
    }
  }

  /// To shared memory: those of a row in kSlots.
  __device__ __forceinline__ void put(float* to) const {
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) {
      const int m = i / 4 / groups, n = i / 4 % groups;
      to[row_of(m, i % 4) * kSlots + vector_of(n, i % 4)] = sums[m][n][i % 4];
    }
  }
  /// To y, from a warp that has whole rows.
  __device__ __forceinline__ void write(const RowProduct& shape, const ThinOutput& output,
                                        const RowTilePlace& place, T* y) const {
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) {
      const int m = i / 4 / groups, n = i / 4 % groups;
      const int32_t row = row_of(m, i % 4), v = vector_of(n, i % 4);
      if (row >= place.count || v >= shape.vectors) continue;
      output.write(place.matrix, place.first + int64_t{row} * shape.by_classes.divisor(), v, shape.vectors,
                   sums[m][n][i % 4], y, static_cast<float*>(nullptr));
    }
  }

 private:
  static __device__ __noinline__ float plain_sum(const RowProduct& shape, const T* a, const T* x,
                                                 const RowTilePlace& place, int32_t row, int32_t v,
                                                 int32_t behind, int32_t first_step, int32_t last_step,
                                                 int32_t round) {
    float sum = 0;
    if (row >= place.count || v >= shape.vectors) return sum;
    const T* const left = a + (place.first + int64_t{row} * shape.by_classes.divisor()) * shape.terms;
    const T* const right = x + v * shape.x_vector;
#pragma unroll 1
    for (int32_t step = first_step; step < last_step; step += round) {
      const int64_t first = int64_t{step} * kTerms - behind, last = min(first + kTerms, shape.terms);
#pragma unroll 1
      for (int64_t term = max(first, int64_t{0}); term < last; ++term) {
        sum += left[term] * right[term * shape.x_element];
      }
    }
    return sum;
  }
};

/// Steps of a warp's tiles, in order: every `round`-th of a tile, then those of the tile `stride` further on.
struct RowStepWalk {
  uint32_t tile, tiles, stride;
  int32_t step, first_step, round, steps;

  __device__ __forceinline__ bool is_valid() const { return tile < tiles && step < steps; }
  /// Whether the next tile begins.
  __device__ __forceinline__ bool next() {
    step += round;
    if (step < steps) return false;
    step = first_step;
    tile += stride;
    return true;
  }
};

/// A tile's sums, of `sharers` warps whose sums are `pitch` apart, by `threads` threads.
template <int slots, class T>
__device__ __forceinline__ void write_row_sums(const RowProduct& shape, const ThinOutput& output,
                                               const RowTilePlace& place, const float* sums, int32_t sharers,
                                               int32_t pitch, int32_t thread, int32_t threads, T* y,
                                               float* table) {
#pragma unroll 1
  for (int32_t i = thread; i < place.count * shape.vectors; i += threads) {
    uint32_t v;
    const auto row = static_cast<int32_t>(shape.by_vectors.divide(static_cast<uint32_t>(i), v));
    const float* const first = sums + row * slots + v;
    float sum = first[0];
    for (int32_t w = 1; w < sharers; ++w) sum += first[w * pitch];
    output.write(place.matrix, place.first + int64_t{row} * shape.by_classes.divisor(), static_cast<int>(v),
                 shape.vectors, sum, y, table);
  }
}

/// Elements of a unit in front of a tile's first row, and thereby of all its rows.
template <class T>
__device__ __forceinline__ int32_t elements_behind(const RowProduct& shape, const RowTilePlace& place,
                                                   const T* a) {
  const T* const row = a + place.matrix * shape.a_stride + place.first * shape.terms;
  const auto rest = static_cast<int32_t>(reinterpret_cast<uintptr_t>(row)) & (shape.unit_bytes - 1);
  return rest / static_cast<int32_t>(sizeof(T));
}

// ---- host

/// Starts the kernel that `Kernels` names with its warps' shared memory, and what adds its parts.
template <class T, class Kernels>
struct RowProductLaunch {
  const Stream& stream;
  const ThinProblem& problem;
  const RowProductPlan& plan;
  const T *a, *x;
  T* y;
  float* table;
  const ThinBias& bias;

  template <int sets, int groups, bool dense>
  void run_kernel() const {
    using Tile = RowTile<T, sets, groups, dense>;
    constexpr int32_t kWarpBytes = Kernels::template warp_bytes<Tile>();
    const auto kernel = Kernels::template kernel<T, sets, groups, dense>();
    static cuda::MostSharedMemory memory;
    memory.allow(kernel, stream.device.index);
    // Fewer warps where a block may have less shared memory than an H200's.
    const auto room = static_cast<int32_t>(cuda::device_traits(stream.device.index).most_shared_bytes);
    const int32_t most = std::clamp(room / kWarpBytes, 1, plan.block_warps);
    const int32_t row_warps = std::min(plan.row_warps, most), warps = most / row_warps * row_warps;
    const RowProduct shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                           .by_classes = cuda::FastDivide(static_cast<uint32_t>(plan.classes)),
                           .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
                           .outs = problem.rows,
                           .terms = problem.columns,
                           .a_stride = problem.a_stride,
                           .x_stride = problem.x_stride,
                           .x_vector = problem.x_vector,
                           .x_element = problem.x_element,
                           .tiles = static_cast<uint32_t>(problem.batch * plan.tiles),
                           .steps = static_cast<int32_t>(plan.steps),
                           .vectors = problem.vectors,
                           .row_warps = row_warps,
                           .tile_rows = static_cast<int32_t>(plan.tile_rows),
                           .unit_bytes = plan.unit_bytes};
    const ThinOutput output(problem, plan.parts, bias);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.parts)),
        .block = dim3(static_cast<unsigned>(32 * warps)),
        .shared_bytes = static_cast<size_t>(warps * kWarpBytes)};
    cuda::launch(stream, grid, kernel, shape, output, a, x, y, table);
    fold_thin_parts<T>(stream, problem, output, table, y);
  }
  template <int sets, int groups>
  void run_vectors() const {
    if (problem.x_element == 1) return run_kernel<sets, groups, true>();
    run_kernel<sets, groups, false>();
  }
  template <int sets>
  void run_groups() const {
    if (problem.vectors <= 8) return run_vectors<sets, 1>();
    run_vectors<sets, 2>();
  }
  void run() const {
    if (plan.sets == 1) return run_groups<1>();
    if (plan.sets == 2) return run_groups<2>();
    run_groups<4>();
  }
};

/// The product as the plan has it, by lines.
template <class T>
void launch_row_products_by_lines(const Stream& stream, const ThinProblem& problem,
                                  const RowProductPlan& plan, const T* a, const T* x, T* y, float* table,
                                  const ThinBias& bias);

}  // namespace sinter::ops
