// Thin products of the 16-bit types with several vectors that sum along few long rows, or groups of them,
// wherever these begin. A warp copies the lines of memory that hold a tile's terms, of its group's rows and
// of all vectors, to shared memory of its own, tiles ahead, and keeps its sums in registers over all of its
// tiles.
//
// Lane 4 g + t multiplies eight neighbouring terms of rows g and g + 8, from 8 t on of every 32, with the
// same terms of vectors g and g + 8. Which terms an instruction calls neighbours does not matter as long as
// both operands mean the same. A row that begins in the middle of a word is read as five words for four;
// where all rows are whole units, it is read as these.
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/units/row_lines_cuda.h>

namespace sinter::ops {
namespace {

using Plan = LongRowProductPlan;

struct LongRowProducts {
  cuda::FastDivide by_parts, by_groups;
  RowLines rows;                             // of the left operand: a group
  RowLines vectors;                          // of the right one, where they may lie side by side
  int64_t terms, row_stride, vector_stride;  // of a matrix, from one to the next
  int32_t matrix_rows;
  uint32_t tiles;
  int32_t stage_bytes, vectors_at;  // of a tile; where its vectors begin
  bool swapped;                     // the left operand are the product's vectors
};

__device__ __forceinline__ int32_t lane() {
  return static_cast<int32_t>(threadIdx.x % 32);
}
/// An instruction's lanes: row or vector `group` of 8, and the terms at `place`.
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
__device__ __forceinline__ uint32_t shared_half(uint32_t at) {
  uint16_t half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(at) : "memory");
  return half;
}

/// A lane's terms of a row in the order of memory, two to a word: of half h of a step of 64.
struct LaneTerms {
  uint32_t words[4];

  __device__ __forceinline__ void mask(const uint32_t (&bits)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] &= bits[i];
  }
};

/// A lane's row of `lines`. Rows that do not exist are read as the first one: their sums are not written.
template <bool units>
struct LineReader {
  uint32_t at[units ? 2 : 1];  // shared addresses in the first stage
  uint32_t order;              // of the bytes of two words

  template <class T>
  __device__ __forceinline__ void begin(const RowLines& lines, const T* data, uint32_t shared, int32_t row) {
    if (row >= lines.rows) row = 0;
    const auto shift = static_cast<int32_t>(reinterpret_cast<uintptr_t>(data + row * lines.pitch) & 127);
    shared += static_cast<uint32_t>(row * lines.line());
    if constexpr (units) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t unit = shift / 16 + place() + 4 * half;
        at[half] = cuda::in_register(shared + static_cast<uint32_t>(16 * (unit ^ row % 2 * 4)));
      }
    } else {
      at[0] = cuda::in_register(shared + static_cast<uint32_t>((shift & 124) + 16 * place()));
      order = (shift & 2) != 0 ? 0x5432 : 0x3210;
    }
  }
  /// Of a step that begins `column` terms behind the tile's first one.
  __device__ __forceinline__ LaneTerms load(uint32_t stage, int32_t column, int half) const {
    const uint32_t moved = stage + static_cast<uint32_t>(2 * column);
    LaneTerms terms;
    if constexpr (units) {
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(terms.words[0]), "=r"(terms.words[1]), "=r"(terms.words[2]), "=r"(terms.words[3])
                   : "r"(at[half] + moved)
                   : "memory");
    } else {
      uint32_t words[5];
#pragma unroll
      for (uint32_t i = 0; i < 5; ++i) words[i] = shared_word(at[0] + moved + 64 * half + 4 * i);
#pragma unroll
      for (int i = 0; i < 4; ++i) terms.words[i] = __byte_perm(words[i], words[i + 1], order);
    }
    return terms;
  }
};

/// The same of a vector whose terms lie `vectors` elements apart.
struct ApartReader {
  uint32_t at;
  uint32_t pitch;  // bytes

  template <class T>
  __device__ __forceinline__ void begin(const RowLines& lines, const T* data, uint32_t shared, int32_t v) {
    if (v >= lines.rows) v = 0;
    pitch = static_cast<uint32_t>(2 * lines.rows);
    at = cuda::in_register(shared + static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) & 127) +
                           static_cast<uint32_t>(2 * v) + 8 * pitch * static_cast<uint32_t>(place()));
  }
  __device__ __forceinline__ LaneTerms load(uint32_t stage, int32_t column, int half) const {
    const uint32_t moved = at + stage + pitch * static_cast<uint32_t>(column + 32 * half);
    LaneTerms terms;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t low = shared_half(moved + 2 * i * pitch),
                     high = shared_half(moved + (2 * i + 1) * pitch);
      terms.words[i] = __byte_perm(low, high, 0x5410);
    }
    return terms;
  }
};

/// A warp's tiles of a matrix: `dense` vectors lie one after the other.
template <class T, int row_sets, int vector_sets, bool units, bool dense>
struct LongRowWarp {
  static constexpr int32_t kSlots = 8 * vector_sets, kSums = 8 * row_sets * kSlots;
  using VectorReader = std::conditional_t<dense, LineReader<units>, ApartReader>;

  const LongRowProducts& shape;
  RowLines lines;           // of the group
  const T *rows, *vectors;  // of the group, of the matrix
  uint32_t shared;          // the warp's first stage
  uint64_t policy = leaves_first();
  float sums[2][vector_sets][4] = {};

  __device__ __forceinline__ LongRowWarp(const LongRowProducts& of, const RowLines& group, const T* a,
                                         const T* x, uint32_t memory)
      : shape(of), lines(group), rows(a), vectors(x), shared(memory) {}

  __device__ __forceinline__ uint32_t vector_memory() const {
    return shared + static_cast<uint32_t>(shape.vectors_at);
  }
  __device__ __forceinline__ int32_t count_of(uint32_t tile) const {
    const int32_t width = shape.rows.width();
    return static_cast<int32_t>(min(int64_t{width}, shape.terms - int64_t{tile} * width));
  }

  struct Copies {
    RowLineCopies<units> rows, vectors;
  };
  __device__ __forceinline__ Copies copies() const {
    return {RowLineCopies<units>(lines, rows, shared),
            RowLineCopies<units>(shape.vectors, vectors, vector_memory())};
  }
  /// Begins to copy a tile, to the stage that begins `stage` bytes behind the first.
  __device__ __forceinline__ void copy(const Copies& own, uint32_t tile, uint32_t stage) const {
    const int32_t width = shape.rows.width(), count = count_of(tile);
    const int64_t first = int64_t{tile} * width;
    const bool inside = first + width + 8 <= shape.terms;
    own.rows.copy(lines, first, count, inside, stage, policy);
    if constexpr (dense) {
      own.vectors.copy(shape.vectors, first, count, inside, stage, policy);
    } else {
      copy_run(reinterpret_cast<uintptr_t>(vectors + first * shape.vectors.rows),
               2 * count * shape.vectors.rows, inside,
               reinterpret_cast<uintptr_t>(vectors + shape.terms * shape.vectors.rows),
               vector_memory() + stage, policy);
    }
  }

  struct Readers {
    LineReader<units> rows[row_sets];
    VectorReader vectors[vector_sets];
  };
  __device__ __forceinline__ Readers readers() const {
    Readers made;
#pragma unroll
    for (int i = 0; i < row_sets; ++i) made.rows[i].begin(lines, rows, shared, group() + 8 * i);
#pragma unroll
    for (int i = 0; i < vector_sets; ++i) {
      made.vectors[i].begin(shape.vectors, vectors, vector_memory(), group() + 8 * i);
    }
    return made;
  }

  /// A step of a tile, of which `count` terms lie in the matrix if `edge`: the others become zero.
  template <bool edge>
  __device__ __forceinline__ void add_step(const Readers& own, uint32_t stage, int32_t column,
                                           int32_t count) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      LaneTerms left[row_sets], right[vector_sets];
#pragma unroll
      for (int i = 0; i < row_sets; ++i) left[i] = own.rows[i].load(stage, column, half);
#pragma unroll
      for (int i = 0; i < vector_sets; ++i) right[i] = own.vectors[i].load(stage, column, half);
      if constexpr (edge) {
        uint32_t bits[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t term = 32 * half + 8 * place() + 2 * i;
          bits[i] = (term < count ? 0xFFFFU : 0U) | (term + 1 < count ? 0xFFFF0000U : 0U);
        }
#pragma unroll
        for (int i = 0; i < row_sets; ++i) left[i].mask(bits);
#pragma unroll
        for (int i = 0; i < vector_sets; ++i) right[i].mask(bits);
      }
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const uint32_t low = left[0].words[j], high = left[0].words[j + 1];
        const uint32_t below[2] = {row_sets > 1 ? left[row_sets - 1].words[j] : 0,
                                   row_sets > 1 ? left[row_sets - 1].words[j + 1] : 0};
#pragma unroll
        for (int i = 0; i < vector_sets; ++i) {
          multiply_add<T>(sums[j / 2][i], {low, below[0], high, below[1]},
                          {right[i].words[j], right[i].words[j + 1]});
        }
      }
    }
  }
  __device__ __forceinline__ void add(const Readers& own, uint32_t tile, uint32_t stage) {
    const int32_t count = count_of(tile);
    int32_t column = 0;
#pragma unroll 1
    for (; column + Plan::kStep <= count; column += Plan::kStep) add_step<false>(own, stage, column, 0);
    if (column < count) add_step<true>(own, stage, column, count - column);
  }

  /// All tiles from `first` on, every `stride`-th.
  __device__ __forceinline__ void run(uint32_t first, uint32_t stride) {
    const auto stage_bytes = static_cast<uint32_t>(shape.stage_bytes), ring = Plan::kStages * stage_bytes;
    const Copies copied = copies();
    uint32_t later = first, stage = 0;
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < Plan::kStages; ++i, later += stride) {
      if (later < shape.tiles) copy(copied, later, i * stage_bytes);
      end_copy_group();
    }
    const Readers own = readers();
#pragma unroll 1
    for (uint32_t tile = first; tile < shape.tiles; tile += stride, later += stride) {
      wait_for_copies<Plan::kStages - 2>();
      __syncwarp();  // all have the tile, and are done with the one before
      if (later < shape.tiles) copy(copied, later, (stage == 0 ? ring : stage) - stage_bytes);
      end_copy_group();
      add(own, tile, stage);
      stage = stage + stage_bytes == ring ? 0 : stage + stage_bytes;
    }
    wait_for_copies<0>();
    __syncwarp();
  }

  /// To shared memory: those of a row in kSlots.
  __device__ __forceinline__ void put(float* to) const {
#pragma unroll
    for (int i = 0; i < vector_sets; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * row_sets; ++j) {
        to[(group() + j / 2 * 8) * kSlots + 8 * i + 2 * place() + j % 2] = sums[0][i][j] + sums[1][i][j];
      }
    }
  }
};

/// Blocks (part of a matrix) of a LongRowProductPlan.
template <class T, int row_sets, int vector_sets, bool units, bool dense>
__global__ void __launch_bounds__(32 * Plan::kMostWarps, 1)
    long_row_products_kernel(const __grid_constant__ LongRowProducts shape,
                             const __grid_constant__ ThinOutput output, const T* __restrict__ rows,
                             const T* __restrict__ vectors, T* __restrict__ y, float* __restrict__ table) {
  using Warp = LongRowWarp<T, row_sets, vector_sets, units, dense>;
  extern __shared__ __align__(128) char long_row_memory[];
  cuda::let_next_begin();
  const auto warps = static_cast<int32_t>(blockDim.x / 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t warp_bytes = Plan::kStages * shape.stage_bytes;
  uint32_t part, group;
  const uint32_t parts = shape.by_parts.divisor();
  const uint32_t matrix = shape.by_groups.divide(shape.by_parts.divide(blockIdx.x, part), group);
  const auto first_row = static_cast<int32_t>(group) * shape.rows.rows;
  RowLines lines = shape.rows;
  lines.rows = min(lines.rows, shape.matrix_rows - first_row);
  char* const memory = long_row_memory + warp * warp_bytes;
  Warp own(shape, lines, rows + matrix * shape.row_stride + first_row * shape.terms,
           vectors + matrix * shape.vector_stride, static_cast<uint32_t>(__cvta_generic_to_shared(memory)));
  own.run(part + static_cast<uint32_t>(warp) * parts, static_cast<uint32_t>(warps) * parts);
  own.put(reinterpret_cast<float*>(memory));
  __syncthreads();
#pragma unroll 1
  for (auto i = static_cast<int32_t>(threadIdx.x); i < Warp::kSums; i += static_cast<int32_t>(blockDim.x)) {
    const int32_t row = i / Warp::kSlots, v = i % Warp::kSlots;
    if (row >= lines.rows || v >= shape.vectors.rows) continue;
    float sum = 0;
#pragma unroll 1
    for (int32_t w = 0; w < warps; ++w) {
      sum += reinterpret_cast<const float*>(long_row_memory + w * warp_bytes)[i];
    }
    if (shape.swapped) {
      output.write_part(part, matrix, v, row, shape.rows.rows, sum, y, table);
    } else {
      output.write_part(part, matrix, first_row + row, v, shape.vectors.rows, sum, y, table);
    }
  }
}

// ---- host

template <class T>
struct LongRowLaunch {
  const Stream& stream;
  const ThinProblem& problem;
  const T *a, *x;
  T* y;
  float* table;
  const ThinBias& bias;

  bool begin_with_units() const {
    const auto is_unit = [&](const T* data, int64_t stride) {
      return cuda::is_aligned(data, 16) && (problem.batch == 1 || stride % 8 == 0);
    };
    // Vectors side by side are read by elements anyway.
    const bool vectors_are = problem.x_element != 1 || is_unit(x, problem.x_stride);
    return problem.in() % 8 == 0 && (problem.transpose || is_unit(a, problem.a_stride)) && vectors_are;
  }

  template <int row_sets, int vector_sets, bool units, bool dense>
  void run(const Plan& plan) const {
    const bool swapped = problem.transpose;
    const auto matrix_rows = static_cast<int32_t>(swapped ? problem.vectors : problem.rows),
               rows = plan.group_rows,
               vectors = static_cast<int32_t>(swapped ? problem.columns : problem.vectors);
    const int32_t log_width = std::countr_zero(static_cast<unsigned>(plan.width));
    const int64_t terms = problem.in();
    const LongRowProducts shape{.by_parts = cuda::FastDivide(static_cast<uint32_t>(plan.parts)),
                                .by_groups = cuda::FastDivide(static_cast<uint32_t>(plan.groups)),
                                .rows = {.pitch = terms, .rows = rows, .log_width = log_width},
                                .vectors = {.pitch = terms, .rows = vectors, .log_width = log_width},
                                .terms = terms,
                                .row_stride = swapped ? problem.x_stride : problem.a_stride,
                                .vector_stride = swapped ? problem.a_stride : problem.x_stride,
                                .matrix_rows = matrix_rows,
                                .tiles = static_cast<uint32_t>(plan.tiles),
                                .stage_bytes = plan.stage_bytes,
                                .vectors_at = rows * Plan::line_bytes(plan.width),
                                .swapped = swapped};
    const auto kernel = long_row_products_kernel<T, row_sets, vector_sets, units, dense>;
    static cuda::MostSharedMemory memory;
    memory.allow(kernel, stream.device.index);
    // Fewer warps where a block may have less shared memory than an H200's.
    const auto room = static_cast<int>(cuda::device_traits(stream.device.index).most_shared_bytes);
    const int warp_bytes = Plan::kStages * plan.stage_bytes;
    const int warps = std::clamp(room / warp_bytes, 1, plan.warps);
    const ThinOutput output(problem, plan.parts, bias);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(problem.batch * plan.groups * plan.parts)),
        .block = dim3(static_cast<unsigned>(32 * warps)),
        .shared_bytes = static_cast<size_t>(warps * warp_bytes)};
    cuda::launch(stream, grid, kernel, shape, output, swapped ? x : a, swapped ? a : x, y, table);
    fold_thin_parts<T>(stream, problem, output, table, y);
  }
  template <int row_sets, int vector_sets>
  void run_sets(const Plan& plan) const {
    const bool units = begin_with_units();
    if (!problem.transpose && problem.x_element == 1) {
      return units ? run<row_sets, vector_sets, true, true>(plan)
                   : run<row_sets, vector_sets, false, true>(plan);
    }
    units ? run<row_sets, vector_sets, true, false>(plan) : run<row_sets, vector_sets, false, false>(plan);
  }
};

}  // namespace

template <class T>
void launch_long_row_products(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                              float* table, const ThinBias& bias) {
  const Plan plan = long_row_product_plan_of(problem);
  const LongRowLaunch<T> launch{stream, problem, a, x, y, table, bias};
  const int64_t rows = plan.group_rows;
  const int64_t vectors = problem.transpose ? problem.columns : problem.vectors;
  if (rows <= 8) {
    return vectors <= 8 ? launch.template run_sets<1, 1>(plan) : launch.template run_sets<1, 2>(plan);
  }
  vectors <= 8 ? launch.template run_sets<2, 1>(plan) : launch.template run_sets<2, 2>(plan);
}

template void launch_long_row_products(const Stream&, const ThinProblem&, const float16*, const float16*,
                                       float16*, float*, const ThinBias&);
template void launch_long_row_products(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                       bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
