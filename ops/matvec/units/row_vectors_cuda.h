// The vectors of products along long rows (row_products_cuda.cu) on their way through a warp's shared memory,
// a step of the rows at a time. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/ops/matvec/plan/row_product_plan.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {

/// What the kernel knows of a RowProductPlan and its problem; sizes in elements.
struct RowProduct {
  cuda::FastDivide by_tiles, by_classes, by_vectors;
  int64_t outs, terms;
  int64_t a_stride, x_stride, x_vector, x_element;
  uint32_t tiles;  // of all matrices
  int32_t steps, vectors, row_warps, tile_rows, unit_bytes;
};

/// A tile's rows: `first`, first + classes and so on, `count` of them, of one matrix.
struct RowTilePlace {
  uint32_t matrix;
  int64_t first;
  int32_t count;

  __device__ __forceinline__ RowTilePlace(const RowProduct& shape, uint32_t tile) {
    uint32_t in_matrix, row_class;
    matrix = shape.by_tiles.divide(tile, in_matrix);
    const uint32_t place = shape.by_classes.divide(in_matrix, row_class);
    const uint32_t classes = shape.by_classes.divisor(), all = shape.tile_rows * classes;
    first = row_class + int64_t{place} * all;
    const int64_t left = shape.outs - first;
    count = left >= all ? shape.tile_rows
                        : static_cast<int32_t>(shape.by_classes.divide(
                              static_cast<uint32_t>(max(left, int64_t{0})) + classes - 1));
  }
};

/// Of a lane: 4 g + t.
__device__ __forceinline__ int32_t row_lane() {
  return static_cast<int32_t>(threadIdx.x % 32);
}
__device__ __forceinline__ int32_t row_lane_g() {
  return row_lane() / 4;
}
__device__ __forceinline__ int32_t row_lane_t() {
  return row_lane() % 4;
}

/// Copies the vectors' terms that a step of rows is multiplied with, and reads them: lane 4 g + t needs of
/// vector 8 n + g the terms of unit 4 k + t. A tile's first step begins `behind` elements before the vectors
/// do.
template <class T, int groups, bool dense>
struct RowVectors;

inline constexpr int32_t kRowVectorPitch = 192;  // bytes: neighbouring vectors lie in different banks

/// float32: each vector's terms in a line of whole units, brought by elements.
template <int groups, bool dense>
struct RowVectors<float, groups, dense> {
  static constexpr int32_t kBytes = groups * 8 * kRowVectorPitch, kTerms = RowProductPlan::kStepBytes / 4;
  static constexpr int32_t kAcross = groups * 8, kTermsAtOnce = 32 / kAcross;  // if vectors are neighbours

  const float* from;  // what the lane copies first of the next step

  /// From step `step` on.
  __device__ __forceinline__ void begin(const RowProduct& shape, const float* x, int32_t behind,
                                        int32_t step) {
    const int64_t term = int64_t{step} * kTerms - behind;
    from = dense ? x + term + row_lane()
                 : x + (term + row_lane() / kAcross) * shape.x_element + row_lane() % kAcross;
  }
  /// The next step, that begins with term `first`; `edge`: without the terms that do not exist. Goes on to
  /// the step `round` further.
  __device__ __forceinline__ void copy(const RowProduct& shape, int64_t first, int32_t round, uint32_t to,
                                       bool edge) {
    const float* source = from;
    from += int64_t{round} * kTerms * (dense ? 1 : shape.x_element);
    if constexpr (dense) {
      const int64_t term = first + row_lane();
      if (edge && (term < 0 || term >= shape.terms)) return;
      to += 4 * static_cast<uint32_t>(row_lane());
#pragma unroll 4
      for (int32_t v = 0; v < shape.vectors; ++v) {
        copy_word(to, source);
        to += kRowVectorPitch;
        source += shape.x_vector;
      }
    } else {
      const int32_t v = row_lane() % kAcross, place = row_lane() / kAcross;
      if (v >= shape.vectors) return;
      to += static_cast<uint32_t>(v * kRowVectorPitch + 4 * place);
      const int64_t step = kTermsAtOnce * shape.x_element;
      if (edge) {
#pragma unroll 1
        for (int64_t term = first + place; term < min(first + kTerms, shape.terms); term += kTermsAtOnce) {
          if (term >= 0) copy_word(to, source);
          to += 4 * kTermsAtOnce;
          source += step;
        }
        return;
      }
#pragma unroll
      for (int i = 0; i < kTerms / kTermsAtOnce; ++i) {
        copy_word(to + 4 * kTermsAtOnce * i, source);
        source += step;
      }
    }
  }

  /// Where a lane reads.
  struct Reader {
    int32_t at[groups];

    __device__ __forceinline__ void begin(const RowProduct& shape, const float*, int32_t) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        at[n] = min(8 * n + row_lane_g(), shape.vectors - 1) * kRowVectorPitch + row_lane_t() * 16;
      }
    }
    __device__ __forceinline__ uint4 load(const RowProduct&, const char* vectors, int k, int n) const {
      return *reinterpret_cast<const uint4*>(vectors + at[n] + 64 * k);
    }
  };

 private:
  __device__ __forceinline__ static void copy_word(uint32_t to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(to), "l"(from) : "memory");
  }
};

/// The 16-bit types: the units that hold a step, as they lie. `dense`: of each vector, which lanes shift;
/// else of all vectors together, of which lanes read single elements.
template <class T, int groups, bool dense>
struct RowVectors {
  static_assert(sizeof(T) == 2);
  static constexpr int32_t kBytes = groups * 8 * kRowVectorPitch, kTerms = RowProductPlan::kStepBytes / 2;

  uintptr_t from, x_begin, x_end;  // the next step of the lane's first vector; the operand

  __device__ __forceinline__ static uintptr_t address(const T* at) { return reinterpret_cast<uintptr_t>(at); }

  __device__ __forceinline__ void begin(const RowProduct& shape, const T* x, int32_t behind, int32_t step) {
    x_begin = address(x);
    x_end = address(x + shape.terms * shape.vectors);
    const int64_t term = int64_t{step} * kTerms - behind;
    from = dense ? address(x + row_lane() / 8 * shape.x_vector + term) : address(x + term * shape.x_element);
  }
  /// `edge`: units may lie outside of the operand.
  __device__ __forceinline__ void copy(const RowProduct& shape, int64_t, int32_t round, uint32_t to,
                                       bool edge) {
    uintptr_t source = from;
    const int64_t across = dense ? 1 : shape.x_element;
    from += static_cast<uintptr_t>(int64_t{round} * RowProductPlan::kStepBytes * across);
    if (edge) return copy_inside(shape, source, to);
    if constexpr (dense) {
      const auto unit = static_cast<uint32_t>(16 * (row_lane() % 8));
      const uint32_t target = to + static_cast<uint32_t>(row_lane() / 8 * kRowVectorPitch) + unit;
      const uintptr_t next = static_cast<uintptr_t>(behind_vectors(shape, source));
#pragma unroll
      for (int i = 0; i < 2 * groups; ++i) {
        if (4 * i + row_lane() / 8 < shape.vectors)
          copy_unit<false>(target + 4 * i * kRowVectorPitch, whole(source) + unit, 0);
        source += static_cast<uintptr_t>(8 * shape.x_vector);
      }
      if (row_lane() < shape.vectors && (next & 15) != 0)
        copy_unit<false>(to + static_cast<uint32_t>(row_lane() * kRowVectorPitch + 128), whole(next) + 128,
                         0);
    } else {
      const auto shift = static_cast<int32_t>(source & 15);
      const int32_t bytes = shift + RowProductPlan::kStepBytes * shape.vectors;
#pragma unroll 4
      for (int32_t at = 16 * row_lane(); at < bytes; at += 16 * 32) {
        copy_unit<false>(to + static_cast<uint32_t>(at), whole(source) + static_cast<uintptr_t>(at), 0);
      }
    }
  }

  /// Where a lane reads, and by how many bytes what it reads is moved.
  struct Reader {
    int32_t at[groups];
    uint32_t shift[groups];

    __device__ __forceinline__ void begin(const RowProduct& shape, const T* x, int32_t behind) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const int32_t v = min(8 * n + row_lane_g(), shape.vectors - 1), t = row_lane_t();
        shift[n] = static_cast<uint32_t>(
                       address(dense ? x + v * shape.x_vector - behind : x - behind * shape.x_element)) &
                   15;
        at[n] = dense ? v * kRowVectorPitch + 16 * t
                      : static_cast<int32_t>(shift[n]) + (8 * t * shape.vectors + v) * 2;
      }
    }
    __device__ __forceinline__ uint4 load(const RowProduct& shape, const char* vectors, int k, int n) const {
      if constexpr (dense) {
        const char* const line = vectors + at[n] + 64 * k;
        ShiftedPack<T> pack;
        pack.shift = shift[n];
        pack.low.word = *reinterpret_cast<const uint4*>(line);
        pack.high.word = *reinterpret_cast<const uint4*>(line + 16);
        return pack.get().word;
      } else {
        const char* element = vectors + at[n] + 64 * k * shape.vectors;
        uint32_t bits[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          bits[j] = *reinterpret_cast<const uint16_t*>(element);
          element += 2 * shape.vectors;
        }
        return {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                bits[6] | bits[7] << 16};
      }
    }
  };

 private:
  __device__ __forceinline__ static uintptr_t whole(uintptr_t at) {
    return at & ~uintptr_t{15};
  }
  /// Where vector number `lane` is, of which the last unit is copied: `source` is where vector lane / 8 is.
  __device__ __forceinline__ static int64_t behind_vectors(const RowProduct& shape, uintptr_t source) {
    return static_cast<int64_t>(source) + 2 * (row_lane() - row_lane() / 8) * shape.x_vector;
  }
  __device__ __forceinline__ void copy_inside(const RowProduct& shape, uintptr_t source, uint32_t to) const {
    const int32_t lines = dense ? shape.vectors : 1;
    uintptr_t line = dense ? source - static_cast<uintptr_t>(2 * (row_lane() / 8) * shape.x_vector) : source;
#pragma unroll 1
    for (int32_t v = 0; v < lines; ++v) {
      const auto shift = static_cast<int32_t>(line & 15);
      const int32_t bytes = shift + RowProductPlan::kStepBytes * (dense ? 1 : shape.vectors);
#pragma unroll 1
      for (int32_t at = 16 * row_lane(); at < bytes; at += 16 * 32) {
        const uintptr_t unit = whole(line) + static_cast<uintptr_t>(at);
        if (unit + 16 <= x_begin || unit >= x_end) continue;
        copy_part_of_unit(to + static_cast<uint32_t>(at), unit,
                          static_cast<uint32_t>(min(x_end - unit, uintptr_t{16})));
      }
      line += static_cast<uintptr_t>(2 * shape.x_vector);
      to += kRowVectorPitch;
    }
  }
};

}  // namespace sinter::ops
