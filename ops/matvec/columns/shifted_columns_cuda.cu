// Thin products of the 16-bit types with several vectors that sum along few rows, wherever these begin. A
// warp copies the lines of memory that hold a tile's columns to shared memory of its own, tiles ahead, and
// reads from there words that begin with any word of a row; of rows that begin in the middle of one, the
// instruction that pairs two rows takes the other halves. Sums go through shared memory, where they lie as in
// y, and leave in whole units.
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/plan/shifted_column_plan.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>

namespace sinter::ops {
namespace {

using Plan = ShiftedColumnPlan;

struct ShiftedColumns {
  cuda::FastDivide by_blocks;
  int64_t outs, a_stride, x_stride, x_vector, x_element, y_stride, y_vector;
  int32_t terms, vectors, log_width;
  int32_t stages, stage_bytes, zeros;  // where those begin in shared memory; of a tile
  bool interleaved;                    // y has the vectors of an out side by side; else the outs of a vector

  __device__ __forceinline__ int32_t width() const { return 1 << log_width; }
  __device__ __forceinline__ int32_t line() const { return 2 * width() + 128; }
  __device__ __forceinline__ int32_t sum_line() const { return 2 * width() + 16; }
};

__device__ __forceinline__ int32_t lane() {
  return static_cast<int32_t>(threadIdx.x);
}
/// An instruction's lanes: column `group` of 8, and the pairs of terms or of vectors at `place`.
__device__ __forceinline__ int32_t group() {
  return lane() / 4;
}
__device__ __forceinline__ int32_t place() {
  return lane() % 4;
}

__device__ __forceinline__ uint32_t shared_word(uint32_t at) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
  return word;
}
__device__ __forceinline__ uint16_t shared_half(uint32_t at) {
  uint16_t half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(at) : "memory");
  return half;
}
__device__ __forceinline__ uint4 shared_unit(uint32_t at) {
  uint4 unit;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.x), "=r"(unit.y), "=r"(unit.z), "=r"(unit.w)
               : "r"(at)
               : "memory");
  return unit;
}
__device__ __forceinline__ void put_word(uint32_t at, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" : : "r"(at), "r"(word) : "memory");
}
__device__ __forceinline__ void put_half(uint32_t at, uint32_t half) {
  asm volatile("st.shared.u16 [%0], %1;" : : "r"(at), "h"(static_cast<uint16_t>(half)) : "memory");
}

__device__ __forceinline__ void write_unit(uintptr_t to, const uint4& unit) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(unit.x), "r"(unit.y), "r"(unit.z), "r"(unit.w)
               : "memory");
}
__device__ __forceinline__ void write_half(uintptr_t to, uint16_t half) {
  asm volatile("st.global.u16 [%0], %1;" : : "l"(to), "h"(half) : "memory");
}

/// A tile: `first` is its column that lies first in memory, which is no column of the matrix if -1.
struct ShiftedTile {
  int64_t first;
  int32_t count;  // columns from there on

  __device__ __forceinline__ ShiftedTile(const ShiftedColumns& shape, uint32_t tile, int32_t skipped)
      : first((int64_t{tile} << shape.log_width) - skipped),
        count(static_cast<int32_t>(min(int64_t{shape.width()}, shape.outs - first))) {}
};

/// A warp's copies: an instruction brings a line of 128 bytes of four rows each, to a line of shared memory.
/// Of a tile's columns a row has up to `lines` times as many bytes.
template <int lines>
struct ShiftedCopies {
  const ShiftedColumns& shape;
  uintptr_t from,
      end;       // of the lane's row of the first four: its column in front of all tiles; of the matrix
  int64_t step;  // bytes of four rows
  uint64_t policy = leaves_first();
  uint32_t to;  // shared address of the lane's unit in the first stage

  template <class T>
  __device__ __forceinline__ ShiftedCopies(const ShiftedColumns& of, const T* a, uint32_t stages)
      : shape(of),
        from(reinterpret_cast<uintptr_t>(a) + static_cast<uintptr_t>(lane() / 8 * of.outs * 2)),
        end(reinterpret_cast<uintptr_t>(a + of.terms * of.outs)),
        step(of.outs * 8),
        to(stages + static_cast<uint32_t>(lane() / 8 * of.line() + lane() % 8 * 16)) {}

  /// Begins to copy a tile to the stage that begins `stage` bytes behind the first.
  __device__ __forceinline__ void copy(const ShiftedTile& tile, uint32_t stage) const {
    const bool inside = tile.count == shape.width() && tile.first + shape.width() + 8 <= shape.outs;
    const int32_t full = shape.width() / 64, unit = lane() % 8 * 16;
    uintptr_t row = from + static_cast<uintptr_t>(tile.first * 2);
    uint32_t target = to + stage;
#pragma unroll 1
    for (int32_t term = lane() / 8; term < shape.terms; term += 4) {
      const auto shift = static_cast<int32_t>(row & 127);
      const uintptr_t source = row - static_cast<uintptr_t>(shift - unit);
      if (inside) {
        if (unit + 16 > shift) copy_unit<true>(target, source, policy);
#pragma unroll
        for (int32_t i = 1; i <= lines; ++i) {
          if (i < full || (i == full && unit < shift)) {
            copy_unit<true>(target + i * 128, source + i * 128, policy);
          }
        }
      } else {
#pragma unroll 1
        for (int32_t at = unit; at < shift + 2 * tile.count; at += 128) {
          if (at + 16 > shift) copy_in_front_of_end(target + (at - unit), source + (at - unit));
        }
      }
      row += static_cast<uintptr_t>(step);
      target += static_cast<uint32_t>(4 * shape.line());
    }
  }

 private:
  /// Behind the matrix's end nothing is read: what lies there is nobody's column.
  __device__ __forceinline__ void copy_in_front_of_end(uint32_t target, uintptr_t source) const {
    if (source + 16 <= end) return copy_unit<true>(target, source, policy);
#pragma unroll 1
    for (uint32_t i = 0; i < 16 && source + i < end; i += 2) {
      put_half(target + i, *reinterpret_cast<const uint16_t*>(source + i));
    }
  }
};

/// The pairs of rows that a lane multiplies, one in every 8: where in the first stage its 8 columns of a
/// group lie, which are those from 8 group() on. `odd`: rows have an odd length; then every second one begins
/// in the middle of a word if the others do not. Rows of a pair are chosen so that lanes read words from
/// different banks.
template <class T, int rows, bool odd>
struct ShiftedRows {
  static constexpr int kPairs = rows / 8;

  uint32_t at[kPairs][2];
  int32_t terms;
  uint32_t zeros;

  static __device__ __forceinline__ int32_t row_of(int pair, int second) {
    return 8 * pair + (odd ? 2 * place() + second : place() + 4 * second);
  }

  __device__ __forceinline__ ShiftedRows(const ShiftedColumns& shape, const T* first, uint32_t shared)
      : terms(shape.terms), zeros(shared + static_cast<uint32_t>(shape.zeros + 16 * group())) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const int32_t row = row_of(i, second);
        const auto begin = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first + row * shape.outs));
        at[i][second] =
            shared + static_cast<uint32_t>(shape.stages + row * shape.line() + 16 * group()) + (begin & 124);
        at[i][second] = cuda::in_register(at[i][second]);
      }
    }
  }
  /// In a stage, of the columns that lie `columns` bytes further.
  __device__ __forceinline__ uint32_t address(int pair, int second, uint32_t stage, uint32_t columns) const {
    return (row_of(pair, second) < terms ? at[pair][second] + stage : zeros) + columns;
  }

  /// A pair's elements of the lane's columns, side by side.
  static __device__ __forceinline__ void load_pair(uint32_t low, uint32_t high, uint32_t (&columns)[8]) {
    uint32_t first[4], second[5];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) first[i] = shared_word(low + 4 * i);
#pragma unroll
    for (uint32_t i = 0; i < (odd ? 5 : 4); ++i) second[i] = shared_word(high + 4 * i);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      columns[2 * i] = __byte_perm(first[i], second[i], odd ? 0x7610 : 0x5410);
      columns[2 * i + 1] = __byte_perm(first[i], second[odd ? i + 1 : i], odd ? 0x5432 : 0x7632);
    }
  }
};

/// What a lane has of the vectors: those of its group, and of 8 more if `sets` is 2, at the rows of its
/// pairs. The sums of instruction i: of columns 2 i and 2 i + 1 of the lane's 8, vectors vector_of(0) and
/// vector_of(1) each.
template <class T, int rows, bool odd, int sets>
struct ShiftedProducts {
  using Rows = ShiftedRows<T, rows, odd>;

  uint32_t vectors[Rows::kPairs][sets];

  /// Lines of y that lie vectors apart begin in different words of a unit, so that lanes write to different
  /// banks.
  static __device__ __forceinline__ int32_t vector_at(int32_t n) { return odd ? n : n / 2 + n % 2 * 4; }
  static __device__ __forceinline__ int32_t vector_of(int second) { return vector_at(2 * place() + second); }

  __device__ __forceinline__ ShiftedProducts(const ShiftedColumns& shape, const T* x) {
#pragma unroll
    for (int i = 0; i < Rows::kPairs; ++i) {
#pragma unroll
      for (int set = 0; set < sets; ++set) {
        const int32_t v = vector_at(group()) + 8 * set, low = Rows::row_of(i, 0), high = Rows::row_of(i, 1);
        const T* const from = x + v * shape.x_vector;
        vectors[i][set] = 0;
        if (v >= shape.vectors) continue;
        if (low < shape.terms) vectors[i][set] = from[low * shape.x_element].bits;
        if (high < shape.terms) vectors[i][set] |= uint32_t{from[high * shape.x_element].bits} << 16;
      }
    }
  }

  __device__ __forceinline__ void multiply(const Rows& own, uint32_t stage, uint32_t columns,
                                           float (&sums)[sets][4][4]) const {
#pragma unroll
    for (int i = 0; i < Rows::kPairs; i += 2) {
      uint32_t low[8], high[8];
      Rows::load_pair(own.address(i, 0, stage, columns), own.address(i, 1, stage, columns), low);
      if constexpr (rows > 8) {
        Rows::load_pair(own.address(i + 1, 0, stage, columns), own.address(i + 1, 1, stage, columns), high);
      }
#pragma unroll
      for (int set = 0; set < sets; ++set) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if constexpr (rows > 8) {
            multiply_add<T>(sums[set][j], {low[2 * j], low[2 * j + 1], high[2 * j], high[2 * j + 1]},
                            {vectors[i][set], vectors[i + 1][set]});
          } else {
            multiply_add<T>(sums[set][j], {low[2 * j], low[2 * j + 1]}, vectors[i][set]);
          }
        }
      }
    }
  }
};

/// A tile's sums on their way to y, in shared memory as they lie there: a line for each vector, or all side
/// by side.
struct ShiftedSums {
  const ShiftedColumns& shape;
  uint32_t shared;
  uintptr_t y;  // the first out

  /// Where line v of the tile that begins with column `first` lies in y.
  __device__ __forceinline__ uintptr_t line_of(int64_t first, int32_t v) const {
    return y + static_cast<uintptr_t>((first + v * shape.y_vector) * 2);
  }
  __device__ __forceinline__ uintptr_t run_of(int64_t first) const {
    return y + static_cast<uintptr_t>(first * shape.vectors * 2);
  }
  /// Units within 128 bytes change places, as lanes write with pitches of many banks.
  static __device__ __forceinline__ uint32_t swapped(uint32_t at) { return at ^ (at >> 3 & 0x70); }

  /// 8 neighbouring outs of vector v, which begin `column` columns behind the tile's first.
  __device__ __forceinline__ void put(const ShiftedTile& tile, int32_t v, int32_t column,
                                      const uint32_t (&outs)[4]) const {
    if (v >= shape.vectors) return;
    if (shape.interleaved) return put_apart(tile, v, column, outs);
    const uint32_t begin = static_cast<uint32_t>(line_of(tile.first, v)) & 15;
    const uint32_t at = shared + static_cast<uint32_t>(v * shape.sum_line() + 2 * column) + begin;
    if ((begin & 2) == 0) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) put_word(at + 4 * i, outs[i]);
      return;
    }
    put_half(at, outs[0]);
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) put_word(at + 2 + 4 * i, __byte_perm(outs[i], outs[i + 1], 0x5432));
    put_half(at + 14, outs[3] >> 16);
  }
  /// All lanes have put theirs.
  __device__ __forceinline__ void write(const ShiftedTile& tile) const {
    const int32_t begin = tile.first < 0 ? 1 : 0;
    if (shape.interleaved) return write_run(tile, begin);
    const int32_t log_lanes = shape.log_width - 3, at = (lane() & ((1 << log_lanes) - 1)) * 16;
#pragma unroll 4
    for (int32_t v = lane() >> log_lanes; v < shape.vectors; v += 32 >> log_lanes) {
      const uintptr_t to = line_of(tile.first, v);
      const auto shift = static_cast<int32_t>(to & 15);
      if (at < shift + 2 * begin || at + 16 > shift + 2 * tile.count) continue;
      write_unit(to - static_cast<uintptr_t>(shift - at),
                 shared_unit(shared + static_cast<uint32_t>(v * shape.sum_line() + at)));
    }
#pragma unroll 1
    for (int32_t v = lane() / 8; v < shape.vectors; v += 4) {
      const uintptr_t to = line_of(tile.first, v);
      const auto shift = static_cast<int32_t>(to & 15);
      write_ends<false>(shared + static_cast<uint32_t>(v * shape.sum_line()),
                        to - static_cast<uintptr_t>(shift), shift + 2 * begin, shift + 2 * tile.count);
    }
  }

 private:
  __device__ __forceinline__ void put_apart(const ShiftedTile& tile, int32_t v, int32_t column,
                                            const uint32_t (&outs)[4]) const {
    uint32_t at = shared + (static_cast<uint32_t>(run_of(tile.first)) & 15) +
                  static_cast<uint32_t>(2 * (column * shape.vectors + v));
#pragma unroll
    for (int i = 0; i < 8; ++i, at += static_cast<uint32_t>(2 * shape.vectors)) {
      put_half(swapped(at), i % 2 == 0 ? outs[i / 2] : outs[i / 2] >> 16);
    }
  }
  __device__ __forceinline__ void write_run(const ShiftedTile& tile, int32_t begin) const {
    const uintptr_t to = run_of(tile.first), unit = to & ~uintptr_t{15};
    const auto shift = static_cast<int32_t>(to & 15);
    const int32_t from = shift + 2 * begin * shape.vectors, behind = shift + 2 * tile.count * shape.vectors;
#pragma unroll 2
    for (int32_t at = 16 * lane(); at + 16 <= behind; at += 32 * 16) {
      if (at < from) continue;
      write_unit(unit + static_cast<uintptr_t>(at), shared_unit(swapped(shared + static_cast<uint32_t>(at))));
    }
    if (lane() < 8) write_ends<true>(shared, unit, from, behind);
  }
  /// What of bytes `from` to `behind` fills no units: eight lanes, an element of each end.
  template <bool swap>
  static __device__ __forceinline__ void write_ends(uint32_t line, uintptr_t to, int32_t from,
                                                    int32_t behind) {
    const int32_t element = lane() % 8 * 2, head = (from & ~15) + element, tail = (behind & ~15) + element;
    const auto write = [&](int32_t at) {
      const uint32_t source = line + static_cast<uint32_t>(at);
      write_half(to + static_cast<uintptr_t>(at), shared_half(swap ? swapped(source) : source));
    };
    if ((from & 15) != 0 && head >= from && head < behind) write(head);
    if ((behind & ~15) >= from && tail < behind) write(tail);
  }
};

/// Block (matrix, every so-manieth tile) of a ShiftedColumnPlan.
template <class T, int rows, bool odd, int sets>
__global__ void __launch_bounds__(Plan::kThreads, Plan::blocks_at_once(rows))
    shifted_columns_kernel(const __grid_constant__ ShiftedColumns shape, const T* __restrict__ a,
                           const T* __restrict__ x, T* __restrict__ y) {
  constexpr int32_t kStages = Plan::stages(rows);
  extern __shared__ __align__(128) char column_memory[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(column_memory));
  uint32_t block;
  const uint32_t matrix = shape.by_blocks.divide(blockIdx.x, block), blocks = shape.by_blocks.divisor();
  a += matrix * shape.a_stride;
  // A first column in the middle of a word is not the first of its tile.
  const auto skipped = static_cast<int32_t>(reinterpret_cast<uintptr_t>(a) / 2 & 1);
  const auto tiles = static_cast<uint32_t>((shape.outs + skipped + shape.width() - 1) >> shape.log_width);
  const auto stage_bytes = static_cast<uint32_t>(shape.stage_bytes), ring = kStages * stage_bytes;
  const ShiftedCopies<Plan::most_width(rows) / 64> copies(shape, a,
                                                          shared + static_cast<uint32_t>(shape.stages));
#pragma unroll
  for (uint32_t i = 0; i + 1 < kStages; ++i) {
    if (block + i * blocks < tiles) {
      copies.copy(ShiftedTile(shape, block + i * blocks, skipped), i * stage_bytes);
    }
    end_copy_group();
  }
  for (int32_t at = 4 * lane(); at < shape.sum_line(); at += 4 * Plan::kThreads) {
    put_word(shared + static_cast<uint32_t>(shape.zeros + at), 0);
  }
  using Products = ShiftedProducts<T, rows, odd, sets>;
  const Products products(shape, x + matrix * shape.x_stride);
  const ShiftedRows<T, rows, odd> own(shape, a - skipped, shared);
  const ShiftedSums out{shape, shared, reinterpret_cast<uintptr_t>(y + matrix * shape.y_stride)};
  uint32_t stage = 0;
#pragma unroll 1
  for (uint32_t number = block; number < tiles; number += blocks) {
    wait_for_copies<kStages - 2>();
    __syncwarp();  // all have the tile, and are done with the one before
    const uint32_t later = number + (kStages - 1) * blocks;
    if (later < tiles) {
      copies.copy(ShiftedTile(shape, later, skipped), (stage == 0 ? ring : stage) - stage_bytes);
    }
    end_copy_group();
    const ShiftedTile tile(shape, number, skipped);
#pragma unroll 1
    for (int32_t column = 0; column < tile.count; column += Plan::kGroup) {
      float sums[sets][4][4] = {};
      products.multiply(own, stage, static_cast<uint32_t>(2 * column), sums);
#pragma unroll
      for (int i = 0; i < 2 * sets; ++i) {
        const int set = i / 2, second = i % 2;
        const uint32_t outs[4] = {round_pair<T>(sums[set][0][second], sums[set][0][second + 2]),
                                  round_pair<T>(sums[set][1][second], sums[set][1][second + 2]),
                                  round_pair<T>(sums[set][2][second], sums[set][2][second + 2]),
                                  round_pair<T>(sums[set][3][second], sums[set][3][second + 2])};
        out.put(tile, Products::vector_of(second) + 8 * set, column + 8 * group(), outs);
      }
    }
    __syncwarp();
    out.write(tile);
    stage = stage + stage_bytes == ring ? 0 : stage + stage_bytes;
  }
}

// ---- host

template <class T, int rows, bool odd, int sets>
void launch_kernel(const Stream& stream, const ThinProblem& problem, const Plan& plan, const T* a, const T* x,
                   T* y) {
  const int stages = plan.sum_bytes, zeros = stages + Plan::stages(rows) * plan.stage_bytes;
  const ShiftedColumns shape{.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks)),
                             .outs = problem.columns,
                             .a_stride = problem.a_stride,
                             .x_stride = problem.x_stride,
                             .x_vector = problem.x_vector,
                             .x_element = problem.x_element,
                             .y_stride = problem.out() * problem.vectors,
                             .y_vector = problem.y_vector,
                             .terms = static_cast<int32_t>(problem.rows),
                             .vectors = problem.vectors,
                             .log_width = std::countr_zero(static_cast<unsigned>(plan.width)),
                             .stages = stages,
                             .stage_bytes = plan.stage_bytes,
                             .zeros = zeros,
                             .interleaved = problem.y_vector == 1};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.blocks)),
                               .block = dim3(Plan::kThreads),
                               .shared_bytes = static_cast<size_t>(plan.shared_bytes())};
  static cuda::MostSharedMemory memory;
  const auto kernel = shifted_columns_kernel<T, rows, odd, sets>;
  memory.allow(kernel, stream.device.index);
  cuda::launch(stream, grid, kernel, shape, a, x, y);
}

template <class T, int rows>
void launch_rows(const Stream& stream, const ThinProblem& problem, const Plan& plan, const T* a, const T* x,
                 T* y) {
  const bool odd = problem.columns % 2 != 0;
  if (problem.vectors <= 8) {
    odd ? launch_kernel<T, rows, true, 1>(stream, problem, plan, a, x, y)
        : launch_kernel<T, rows, false, 1>(stream, problem, plan, a, x, y);
  } else {
    odd ? launch_kernel<T, rows, true, 2>(stream, problem, plan, a, x, y)
        : launch_kernel<T, rows, false, 2>(stream, problem, plan, a, x, y);
  }
}

}  // namespace

template <class T>
void launch_shifted_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const Plan plan = plan_shifted_columns(problem.batch, problem.columns, problem.rows, problem.vectors);
  switch (plan.rows) {
    case 8:
      return launch_rows<T, 8>(stream, problem, plan, a, x, y);
    case 16:
      return launch_rows<T, 16>(stream, problem, plan, a, x, y);
    case 32:
      return launch_rows<T, 32>(stream, problem, plan, a, x, y);
    default:
      return launch_rows<T, 64>(stream, problem, plan, a, x, y);
  }
}

template void launch_shifted_columns(const Stream&, const ThinProblem&, const float16*, const float16*,
                                     float16*);
template void launch_shifted_columns(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                     bfloat16*);

}  // namespace sinter::ops
