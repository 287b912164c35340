// The rings in shared memory into which the warps of a FloatManyTermPlan copy their columns, each its own,
// step after step and tile after tile. For .cu files.
#pragma once

#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {

/// What the kernel knows of a plan and its problem; in elements where it is not in bytes.
struct FloatManyTerms {
  cuda::FastDivide by_tiles, by_vectors, by_stride;
  int64_t outs, terms, a_stride, x_stride, x_vector, x_element;
  int64_t end;                 // of the last matrix, in bytes
  int32_t items;               // tiles of all matrices
  int32_t steps, step_stride;  // of a column, of which a warp takes every so-manieth
  int32_t width, log_across;   // columns of a warp; warps side by side
  int32_t vectors;
  bool interleaved;  // y has the vectors of an out side by side
};

/// The columns of a warp in a block's tile: how many are there, which may be none.
struct WarpColumns {
  int64_t matrix, first;
  int32_t count;

  __device__ __forceinline__ WarpColumns(const FloatManyTerms& shape, int32_t item, int32_t place) {
    uint32_t tile;
    matrix = shape.by_tiles.divide(static_cast<uint32_t>(item), tile);
    first = ((int64_t{tile} << shape.log_across) + place) * shape.width;
    count = static_cast<int32_t>(max(min(shape.outs - first, int64_t{shape.width}), int64_t{0}));
  }
};

/// The steps of a warp: the same in every tile.
struct WarpSteps {
  int32_t first, count;

  __device__ __forceinline__ WarpSteps(const FloatManyTerms& shape, int32_t below) {
    const int32_t log_below = FloatManyTermPlan::kLogWarps - shape.log_across;
    first = (static_cast<int32_t>(blockIdx.y) << log_below) + below;
    count =
        first < shape.steps
            ? static_cast<int32_t>(shape.by_stride.divide(static_cast<uint32_t>(shape.steps - 1 - first))) + 1
            : 0;
  }
};

/// Copies a warp's steps into its ring, tile after tile. Row r of a step begins r / 4 groups and r % 4 lines
/// behind the stage's begin, and as many words as lie in front of it in its first unit.
template <int quads>
struct ColumnRing {
  static constexpr int32_t kLine = FloatManyTermPlan::line_words(quads);
  static constexpr int32_t kGroup = FloatManyTermPlan::group_words(quads);
  static constexpr int32_t kStageBytes = 4 * FloatManyTermPlan::stage_words(quads);
  static constexpr int32_t kStages = FloatManyTermPlan::stages(quads);
  // Lanes of a row; rows of a copy, and of each lane those that begin differently.
  static constexpr int32_t kLanes = quads == 1 ? 8 : quads == 2 ? 16 : 32;
  static constexpr int32_t kRows = 32 / kLanes, kKinds = 4 / kRows;
  static constexpr bool kHasMore = kLanes == 8 * quads;  // a row may have a unit more than it has lanes

  const FloatManyTerms& shape;
  const float* a;
  uint64_t policy;
  int64_t pitch;
  uint32_t ring;  // shared address
  WarpSteps steps;
  int32_t place, item, step, stage = 0;
  uintptr_t rows[kKinds], more;  // of the next step
  bool takes[kKinds], takes_more;

  __device__ __forceinline__ ColumnRing(const FloatManyTerms& of, const float* matrices, uint32_t at,
                                        const WarpSteps& own, int32_t across)
      : shape(of),
        a(matrices),
        policy(leaves_first()),
        pitch(of.outs * 4),
        ring(at),
        steps(own),
        place(across),
        item(static_cast<int32_t>(blockIdx.x)) {
    if (steps.count == 0) item = shape.items;
    begin_item();
  }

  static __device__ __forceinline__ int32_t lane() { return static_cast<int32_t>(threadIdx.x % 32); }

  /// The next step of the item, or of the next one where the warp has columns.
  __device__ __forceinline__ void begin_item() {
#pragma unroll 1
    for (; item < shape.items; item += static_cast<int32_t>(gridDim.x)) {
      const WarpColumns columns(shape, item, place);
      if (columns.count == 0) continue;
      step = steps.first;
      const auto first = reinterpret_cast<uintptr_t>(a + columns.matrix * shape.a_stride + columns.first +
                                                     int64_t{step} * FloatManyTermPlan::kStep * shape.outs);
      const int32_t unit = lane() % kLanes;
#pragma unroll
      for (int i = 0; i < kKinds; ++i) {
        const uintptr_t begin = first + static_cast<uintptr_t>((lane() / kLanes + i * kRows) * pitch);
        const auto shift = static_cast<int32_t>(begin & 15);
        rows[i] = begin - static_cast<uintptr_t>(shift) + static_cast<uintptr_t>(16 * unit);
        takes[i] = 4 * unit < shift / 4 + columns.count;
      }
      if constexpr (kHasMore) {
        const uintptr_t begin = first + static_cast<uintptr_t>(lane() % FloatManyTermPlan::kStep * pitch);
        const auto shift = static_cast<int32_t>(begin & 15);
        more = begin - static_cast<uintptr_t>(shift) + static_cast<uintptr_t>(16 * kLanes);
        takes_more = lane() < FloatManyTermPlan::kStep && 4 * kLanes < shift / 4 + columns.count;
      }
      return;
    }
  }

  /// Begins to copy the next step, if there is one.
  __device__ __forceinline__ void copy_next() {
    if (item < shape.items) {
      const uint32_t to = ring + static_cast<uint32_t>(stage * kStageBytes);
      const uint32_t own = to + static_cast<uint32_t>(4 * kLine * (lane() / kLanes) + 16 * (lane() % kLanes));
      const uint32_t behind =
          to + static_cast<uint32_t>(
                   4 * (lane() % FloatManyTermPlan::kStep / 4 * kGroup + lane() % 4 * kLine) + 16 * kLanes);
      const int64_t left = shape.terms - int64_t{step} * FloatManyTermPlan::kStep;
      if (left > FloatManyTermPlan::kStep) {
#pragma unroll
        for (int i = 0; i < kKinds; ++i) {
          uintptr_t from = rows[i];
#pragma unroll
          for (int k = 0; k < 4; ++k, from += static_cast<uintptr_t>(4 * pitch)) {
            if (takes[i]) copy_unit<true>(own + 4 * (k * kGroup + i * kRows * kLine), from, policy);
          }
        }
        if (kHasMore && takes_more) copy_unit<true>(behind, more, policy);
      } else {  // the last one of the matrix
        const auto rows_left = static_cast<int32_t>(left);
#pragma unroll 1
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int i = 0; i < kKinds; ++i) {
            const int32_t row = 4 * k + i * kRows + lane() / kLanes;
            if (!takes[i]) continue;
            copy_or_clear(own + static_cast<uint32_t>(4 * (k * kGroup + i * kRows * kLine)),
                          rows[i] + static_cast<uintptr_t>(4 * k * pitch), row < rows_left);
          }
        }
        if (kHasMore && takes_more) copy_or_clear(behind, more, lane() < rows_left);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
      step += shape.step_stride;
      if (step < shape.steps) {
        const int64_t advance = int64_t{shape.step_stride} * FloatManyTermPlan::kStep * pitch;
#pragma unroll
        for (int i = 0; i < kKinds; ++i) rows[i] += static_cast<uintptr_t>(advance);
        if constexpr (kHasMore) more += static_cast<uintptr_t>(advance);
      } else {
        item += static_cast<int32_t>(gridDim.x);
        begin_item();
      }
    }
    end_copy_group();
  }

  /// A unit of a row that is there, or zeros. Nothing is read behind the end.
  __device__ __forceinline__ void copy_or_clear(uint32_t to, uintptr_t from, bool is_row) const {
    const uintptr_t end = reinterpret_cast<uintptr_t>(a) + static_cast<uintptr_t>(shape.end);
    if (is_row && from + 16 <= end) {
      copy_unit<true>(to, from, policy);
      return;
    }
#pragma unroll 1
    for (uint32_t j = 0; j < 16; j += 4) {
      const uint32_t word = is_row && from + j < end ? *reinterpret_cast<const uint32_t*>(from + j) : 0;
      asm volatile("st.shared.u32 [%0], %1;" : : "r"(to + j), "r"(word) : "memory");
    }
  }
};

}  // namespace sinter::ops
