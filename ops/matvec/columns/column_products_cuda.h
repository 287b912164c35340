// What warps multiply that take 64 neighbouring columns of 16-bit elements by up to 16 vectors, straight from
// memory to tensor cores. For .cu files.
//
// The vectors are the left operand, whose rows they are, and columns the right one. A lane loads 16 bytes of
// a row: 8 neighbouring columns, each of which is one of the 8 of an instruction of its own. Lane 4 g + t has
// the rows of terms 2 t and 2 t + 1, whose elements of a column are put together in a register, and of every
// sum vectors g and g + 8 of twice 8 neighbouring columns: 16 bytes of y each. Lanes take packs of columns in
// an order in which what lanes write together is neighbouring, too.
#pragma once

#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {

/// One of `batch` products; strides in elements. Terms are rows, outs columns.
struct ColumnProduct {
  int64_t outs, terms;
  int64_t a_stride, x_stride, x_vector, x_element;
  int32_t vectors;
};

/// A lane's packs of 16 terms, or of 8: 4 or 2. `whole`: rows are whole units, aligned; else they begin
/// anywhere.
template <class T, bool whole, int packs>
struct ColumnPacks {
  static constexpr int kOuts = 64;

  std::conditional_t<whole, LoadedPack<T, 8>, ShiftedPack<T>> loaded[packs];

  static __device__ __forceinline__ int32_t group() { return static_cast<int32_t>(threadIdx.x % 32 / 4); }
  static __device__ __forceinline__ int32_t place() { return static_cast<int32_t>(threadIdx.x % 4); }
  /// The first of a lane's 8 columns.
  static __device__ __forceinline__ int32_t first_out() { return group() / 2 * 8 + group() % 2 * 32; }
  /// The first of the 8 columns of its sums: of the even ones of 4, or the odd ones.
  static __device__ __forceinline__ int32_t first_sum(int odd) { return place() * 8 + odd * 32; }
  /// Of a step's terms, that of the lane's pack number i.
  static __device__ __forceinline__ int32_t term_of(int i) { return 2 * place() + i % 2 + i / 2 * 8; }

  /// Begins to load terms `term` and further of 64 columns from `out` on; what is not there is zero, but for
  /// columns behind the last one, whose sums nobody has.
  __device__ __forceinline__ void load(const ColumnProduct& shape, const T* a, int64_t out, int64_t term) {
    const int64_t from = out + first_out();
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      loaded[i] = {};
      const int64_t row = term + term_of(i);
      if (from >= shape.outs || row >= shape.terms) continue;
      if constexpr (whole) {
        loaded[i].load_once(LoadedPack<T, 8>::source(a + row * shape.outs + from));
      } else {
        loaded[i].template load<true>(a + row * shape.outs + from, a + shape.terms * shape.outs);
      }
    }
  }

  /// Whether the 64 columns from `out` on, and the units that hold them, lie in front of the last column.
  static __device__ __forceinline__ bool is_inside(const ColumnProduct& shape, int64_t out) {
    return out + kOuts + 8 <= shape.outs;
  }
  /// The same of the first terms of such columns.
  __device__ __forceinline__ void load_inside(const ColumnProduct& shape, const T* a, int64_t out) {
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      loaded[i] = {};
      if (term_of(i) >= shape.terms) continue;
      const T* const from = a + term_of(i) * shape.outs + out + first_out();
      if constexpr (whole) {
        loaded[i].load_once(LoadedPack<T, 8>::source(from));
      } else {
        const auto address = reinterpret_cast<uintptr_t>(from);
        loaded[i].shift = static_cast<uint32_t>(address) & 15;
        const auto* const unit = reinterpret_cast<const uint4*>(address - loaded[i].shift);
        loaded[i].low.load_once(unit);
        loaded[i].high.load_once(unit + 1);
      }
    }
  }

  /// sums[j]: those of column j of each lane's pack.
  __device__ __forceinline__ void multiply(const uint32_t (&vectors)[packs], float (&sums)[8][4]) const {
    uint4 rows[packs];
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      if constexpr (whole) {
        rows[i] = loaded[i].word;
      } else {
        rows[i] = loaded[i].get().word;
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t order = j % 2 == 0 ? 0x5410 : 0x7632;
      uint32_t columns[packs / 2];
#pragma unroll
      for (int i = 0; i < packs / 2; ++i) {
        columns[i] = __byte_perm(word_of(rows[2 * i], j / 2), word_of(rows[2 * i + 1], j / 2), order);
      }
      if constexpr (packs == 4) {
        multiply_add<T>(sums[j], vectors, columns);
      } else {
        multiply_add<T>(sums[j], vectors, columns[0]);
      }
    }
  }

  /// What a lane has of the vectors' terms `term` and further.
  static __device__ __forceinline__ void load_vectors(const ColumnProduct& shape, const T* x, int64_t term,
                                                      uint32_t (&vectors)[packs]) {
    const int64_t left = shape.terms - term - 2 * place();
    const T* const lines = x + group() * shape.x_vector + (term + 2 * place()) * shape.x_element;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const bool has_vector = group() + i % 2 * 8 < shape.vectors;
      const T* const from = lines + i % 2 * 8 * shape.x_vector + i / 2 * 8 * shape.x_element;
      uint32_t low = 0, high = 0;
      if (has_vector && i / 2 * 8 < left) low = from->bits;
      if (has_vector && i / 2 * 8 + 1 < left) high = from[shape.x_element].bits;
      vectors[i] = low | high << 16;
    }
  }

 private:
  static __device__ __forceinline__ uint32_t word_of(const uint4& pack, int i) {
    return i == 0 ? pack.x : i == 1 ? pack.y : i == 2 ? pack.z : pack.w;
  }
};

/// The same of 16 terms after another, `step` terms apart, all of which have a row behind them: nothing is
/// checked, and a step is additions to addresses. From one to the next, rows begin alike in their units.
/// `dense`: the terms of a vector are neighbours; else its vectors are.
template <class T, bool whole, bool dense>
struct ColumnWalk {
  using Packs = ColumnPacks<T, whole, 4>;
  static constexpr int kPlaces = dense ? 2 : 4;  // whose elements, 4 or 2, lie at fixed distances

  const char *rows[4], *places[kPlaces];
  uint32_t shift[4];
  int64_t row_step, place_step;  // bytes
  bool has_low, has_high;        // vectors

  __device__ __forceinline__ ColumnWalk(const ColumnProduct& shape, const T* a, const T* x, int64_t out,
                                        int64_t term, int64_t step)
      : row_step(step * shape.outs * 2),
        place_step(step * shape.x_element * 2),
        has_low(Packs::group() < shape.vectors),
        has_high(Packs::group() + 8 < shape.vectors) {
    // Lanes without columns load others.
    const int64_t own = out + Packs::first_out(), from = own < shape.outs ? own : shape.outs - 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto first = reinterpret_cast<uintptr_t>(a + (term + Packs::term_of(i)) * shape.outs + from);
      shift[i] = whole ? 0 : static_cast<uint32_t>(first) & 15;
      rows[i] = reinterpret_cast<const char*>(first - shift[i]);
    }
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int64_t vector = Packs::group() + (dense ? 8 * i : 0);
      const int64_t at = term + 2 * Packs::place() + (dense ? 0 : i % 2 + i / 2 * 8);
      places[i] = reinterpret_cast<const char*>(x + vector * shape.x_vector + at * shape.x_element);
    }
  }

  __device__ __forceinline__ void load(Packs& packs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* const unit = reinterpret_cast<const uint4*>(rows[i]);
      if constexpr (whole) {
        packs.loaded[i].load_once(unit);
      } else {
        packs.loaded[i].low.load_once(unit);
        packs.loaded[i].high.load_once(unit + 1);
        packs.loaded[i].shift = shift[i];
      }
      rows[i] += row_step;
    }
  }
  __device__ __forceinline__ void load_vectors(uint32_t (&vectors)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool has_vector = i % 2 == 0 ? has_low : has_high;
      uint32_t low = 0, high = 0;
      if (has_vector) {
        const char* const first = dense ? places[i % 2] + i / 2 * 16 : places[i / 2 * 2] + i % 2 * 16;
        const char* const second = dense ? first + 2 : places[i / 2 * 2 + 1] + i % 2 * 16;
        low = __ldg(reinterpret_cast<const uint16_t*>(first));
        high = __ldg(reinterpret_cast<const uint16_t*>(second));
      }
      vectors[i] = low | high << 16;
    }
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) places[i] += place_step;
  }
};

/// Sums of vector g, or g + 8 if `high`, of the 8 columns from first_sum(odd) on, rounded.
template <class T>
__device__ __forceinline__ uint4 round_columns(const float (&sums)[8][4], int high, int odd) {
  const int i = 2 * high + odd;
  return {round_pair<T>(sums[0][i], sums[1][i]), round_pair<T>(sums[2][i], sums[3][i]),
          round_pair<T>(sums[4][i], sums[5][i]), round_pair<T>(sums[6][i], sums[7][i])};
}

}  // namespace sinter::ops
