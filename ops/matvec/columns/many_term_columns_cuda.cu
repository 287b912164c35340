// Thin products of the 16-bit types that sum along many rows, wherever these begin. Every eighth row begins
// at the same place of a unit of 16 bytes: those are a class, and a warp's. It copies the units that hold a
// tile's columns to shared memory of its own, and tensor cores multiply them as they lie there. A block's
// warps share the vectors; their sums are moved to their columns when they are added.
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/plan/unit_plan.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>

namespace sinter::ops {
namespace {

using Plan = ManyTermPlan;

struct ManyTermColumns {
  cuda::FastDivide by_tiles, by_vectors, by_columns;
  int64_t outs, terms, elements, a_stride, x_stride, x_vector, x_element;
  int64_t x_fold;          // from a row of a fold to the next
  int32_t vectors, width;  // columns of a tile
  int32_t last_vectors;    // that have a last term: of folded rows perhaps not all
  int32_t fold;            // rows of the matrix that are one here, see many_term_product; else 1
  int32_t of_a_row;        // vectors of each of these
  bool interleaved;        // y has the vectors of an out side by side
};

__device__ __forceinline__ int32_t lane() {
  return static_cast<int32_t>(threadIdx.x % 32);
}
__device__ __forceinline__ int32_t warp() {
  return static_cast<int32_t>(threadIdx.x / 32);
}

/// A warp's rows on their way through its ring, stage after stage: of each the `units` that hold its columns.
/// What eight neighbouring lanes copy lies in one line of memory, as far as rows allow, and in one of shared
/// memory, where rows have their units in different orders: so that L2 is asked once, and banks are
/// different.
template <int units>
struct ClassRows {
  static constexpr int32_t kRowsAtOnce = 32 / units, kLine = 16 * units;
  static constexpr uint32_t kStage = Plan::kStep * kLine, kRing = Plan::ring_bytes(units);

  uintptr_t from;      // the lane's unit in the next round's rows
  int64_t step, skip;  // bytes of kRowsAtOnce rows of the class; of the rounds that other parts have
  uint64_t policy = leaves_first();
  uint32_t to, last;  // shared addresses for its row's lane: in the stage of the next round, in the last one
  uint32_t takes;     // whether the lane has a unit

  template <class T>
  __device__ __forceinline__ ClassRows(const ManyTermColumns& shape, const T* a, int64_t column,
                                       int64_t round, uint32_t ring)
      : step(kRowsAtOnce * Plan::kClasses * shape.outs * 2),
        skip((gridDim.y - 1) * Plan::kRound * shape.outs * 2) {
    const int32_t row = lane() / units, place = lane() % units;
    const uintptr_t begin = row_begin(shape, a, column, round, row);
    const auto shift = static_cast<int32_t>(begin & 15);
    const int32_t unit = ((place - turned(shape, begin)) & (units - 1)) * 16;
    const int32_t bytes = shift + 2 * static_cast<int32_t>(min(shape.outs - column, int64_t{shape.width}));
    from = begin + static_cast<uintptr_t>(unit - shift);
    to = ring + static_cast<uint32_t>(row * kLine + (place ^ row) * 16);
    last = to + kRing - kStage;
    takes = unit < bytes ? 1 : 0;
    step = cuda::in_register(step);
    skip = cuda::in_register(skip);
    to = cuda::in_register(to);
    // Not a stage in a uniform register: ptxas 13.0 writes illegal instructions where it is added.
    last = cuda::in_register(last);
    takes = cuda::in_register(takes);
  }

  /// Where row `row` of the class begins in a round.
  template <class T>
  static __device__ __forceinline__ uintptr_t row_begin(const ManyTermColumns& shape, const T* a,
                                                        int64_t column, int64_t round, int32_t row) {
    const int64_t in_matrix = round * Plan::kRound + warp() + row * Plan::kClasses;
    return reinterpret_cast<uintptr_t>(a + in_matrix * shape.outs + column);
  }
  /// How far a row's units are turned round in its line of shared memory: as far as they are in memory's, if
  /// that is the same in all rows of a lane.
  static __device__ __forceinline__ int32_t turned(const ManyTermColumns& shape, uintptr_t begin) {
    const auto advance = static_cast<int32_t>(kRowsAtOnce * shape.outs);
    return static_cast<int32_t>(begin / 16) & (advance % 8 == 0 ? 7 : advance % 4 == 0 ? 3 : 1);
  }

  /// Begins to copy the next round's rows, behind which the matrix has a row.
  __device__ __forceinline__ void copy() {
#pragma unroll
    for (uint32_t i = 0; i < Plan::kStep / kRowsAtOnce; ++i, from += static_cast<uintptr_t>(step)) {
      if (takes != 0) copy_unit<true>(target(i), from, policy);
    }
    from += static_cast<uintptr_t>(skip);
    go_on();
  }
  /// In place of the next round the first `count` rows of the matrix's last one, `rounds` further, and zeros
  /// behind them. Nothing is read behind the matrix's end.
  __device__ __forceinline__ void copy_last(int64_t rounds, int32_t count, uintptr_t end) {
    uintptr_t source = from + static_cast<uintptr_t>(rounds * (Plan::kStep / kRowsAtOnce) * step);
#pragma unroll 1
    for (uint32_t i = 0; i < Plan::kStep / kRowsAtOnce; ++i) {
      const int32_t row = lane() / units + static_cast<int32_t>(i) * kRowsAtOnce;
      if (takes != 0) copy_or_clear(target(i), source, row < count ? end : 0);
      source += static_cast<uintptr_t>(step);
    }
    go_on();
  }

 private:
  __device__ __forceinline__ uint32_t target(uint32_t i) const {
    return (to ^ (i * kRowsAtOnce % 8 * 16)) + i * kRowsAtOnce * kLine;
  }
  __device__ __forceinline__ void go_on() {
    to = to == last ? to - (kRing - kStage) : to + kStage;
  }
  __device__ __forceinline__ void copy_or_clear(uint32_t target, uintptr_t source, uintptr_t end) const {
    if (source + 16 <= end) return copy_unit<true>(target, source, policy);
#pragma unroll 1
    for (uint32_t j = 0; j < 16; j += 2) {
      const uint16_t bits = source + j < end ? *reinterpret_cast<const uint16_t*>(source + j) : uint16_t{0};
      asm volatile("st.shared.u16 [%0], %1;" : : "r"(target + j), "h"(bits) : "memory");
    }
  }
};

/// Where a lane finds units of its row in the first stage: an instruction's 16 rows, of two units at once.
template <int units>
struct ClassUnits {
  uint32_t line, first, order;  // shared address; the place of the lane's first unit, and what changes places

  template <class T>
  __device__ __forceinline__ ClassUnits(const ManyTermColumns& shape, const T* a, int64_t column,
                                        int64_t round, uint32_t ring) {
    using Rows = ClassRows<units>;
    const int32_t row = Plan::row_of(lane() % 16);
    line = ring + static_cast<uint32_t>(row * Rows::kLine);
    first = static_cast<uint32_t>(lane() / 16 +
                                  Rows::turned(shape, Rows::row_begin(shape, a, column, round, row)));
    order = static_cast<uint32_t>(row % 8);
    line = cuda::in_register(line);
    first = cuda::in_register(first);
    order = cuda::in_register(order);
  }
  __device__ __forceinline__ uint32_t at(uint32_t stage, uint32_t unit) const {
    return line + stage + (((first + unit) & (units - 1)) ^ order) * 16;
  }
};

/// What a warp brings of the vectors, those of its number and of eight more, into the operands that all
/// multiply with: lane 4 v + t of class c gets a round's terms c + 8 t + 32 i of vectors v and v + 8. So the
/// terms that a lane loads are 32 apart, and an instruction's rows those of Plan::row_of().
template <class T, bool dense>
struct VectorTerms {
  static constexpr int kVectors = kMostStagedVectors / Plan::kClasses;

  const T* from[kVectors];   // the lane's first term of the next round
  int64_t step, skip;        // 32 terms; those of the rounds that other parts have
  uint32_t takes[kVectors];  // whether there is such a vector
  uint32_t to;               // shared address, in the first slot
  uint32_t ahead[kVectors][4];

  __device__ __forceinline__ VectorTerms(const ManyTermColumns& shape, const T* x, int64_t round,
                                         uint32_t operands)
      : step(32 * (dense ? 1 : shape.x_element)), skip((gridDim.y - 1) * 4 * step) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int32_t v = warp() + i * Plan::kClasses;
      takes[i] = v < shape.vectors ? 1 : 0;
      takes[i] = cuda::in_register(takes[i]);
      uint32_t own;
      const uint32_t row = shape.by_vectors.divide(static_cast<uint32_t>(v), own);
      from[i] =
          x + own * shape.x_vector + row * shape.x_fold + (round * Plan::kRound + lane()) * shape.x_element;
#pragma unroll
      for (int j = 0; j < 4; ++j) ahead[i][j] = 0;
    }
    to = operands + static_cast<uint32_t>(lane() % 8 * Plan::kOperandBytes + (warp() * 4 + lane() / 8) * 16);
    to = cuda::in_register(to);
    if (!dense) step = cuda::in_register(step);
    skip = cuda::in_register(skip);
  }

  /// Begins to load those of the next round.
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (takes[i] == 0) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j, from[i] += dense ? 32 : step) {
        ahead[i][j] = __ldg(reinterpret_cast<const uint16_t*>(from[i]));
      }
      from[i] += skip;
    }
  }
  /// In place of the next round those of the matrix's last one, `rounds` further, which has `count` terms.
  __device__ __forceinline__ void load_last(int64_t rounds, int32_t count, int32_t last_vectors) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const T* const first = from[i] + 4 * rounds * step;
      const int32_t own_count = count - (warp() + i * Plan::kClasses < last_vectors ? 0 : 1);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        ahead[i][j] = takes[i] != 0 && lane() + 32 * j < own_count ? first[j * step].bits : 0;
      }
    }
  }
  /// What was loaded. `all`: of vectors that there are not, too: zeros.
  __device__ __forceinline__ void store(uint32_t slot, bool all) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!all && takes[i] == 0) continue;
      const uint32_t at = to + slot + 4 * i;
      asm volatile("st.shared.u32 [%0], %1;" : : "r"(at), "r"(ahead[i][0] | ahead[i][1] << 16) : "memory");
      asm volatile("st.shared.u32 [%0], %1;"
                   :
                   : "r"(at + 8), "r"(ahead[i][2] | ahead[i][3] << 16)
                   : "memory");
    }
  }
};

/// sums[n] += the vectors' terms, a lane's of which lie at `operand`, times the columns of unit n of the rows
/// of a stage.
template <class T, int units>
__device__ __forceinline__ void multiply_step(const ClassUnits<units>& rows, uint32_t stage, uint32_t operand,
                                              float (&sums)[units][4]) {
  uint32_t vectors[4];
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vectors[0]), "=r"(vectors[1]), "=r"(vectors[2]), "=r"(vectors[3])
               : "r"(operand)
               : "memory");
#pragma unroll
  for (uint32_t n = 0; n < units; n += 2) {
    uint32_t columns[2][2];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(columns[0][0]), "=r"(columns[0][1]), "=r"(columns[1][0]), "=r"(columns[1][1])
                 : "r"(rows.at(stage, n))
                 : "memory");
    multiply_add<T>(sums[n], vectors, columns[0]);
    multiply_add<T>(sums[n + 1], vectors, columns[1]);
  }
}

/// The sums of a block's warps, in place of their rings: those of a vector from the beginning of the warp's
/// first unit on.
template <int units>
struct ColumnWarpSums {
  static constexpr int32_t kLine = 8 * units + 4;

  float lines[Plan::kClasses][kMostStagedVectors][kLine];

  __device__ __forceinline__ void put(const float (&sums)[units][4], int32_t vectors) {
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int32_t v = lane() / 4 + 8 * high;
      if (v >= vectors) break;
      float* const to = lines[warp()][v] + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < units; ++n) {
        *reinterpret_cast<float2*>(to + 8 * n) = {sums[n][2 * high], sums[n][2 * high + 1]};
      }
    }
  }
  /// Of column `out` of the tile, which begins `shift` elements behind a unit in the first row, and `step`
  /// more in every other one.
  __device__ __forceinline__ float total(int32_t v, int32_t out, uint32_t shift, uint32_t step) const {
    float sum = 0;
#pragma unroll
    for (int32_t c = 0; c < Plan::kClasses; ++c, shift += step) {
      sum += lines[c][v][out + static_cast<int32_t>(shift % 8)];
    }
    return sum;
  }
};

/// The sums along the columns of the matrix, from those of folded rows: row r of a fold has its own vectors,
/// the `of_a_row` from number r * of_a_row on. Of tiles that are whole folded rows a column is added up; of
/// others, rows of a fold are parts of their own.
template <class Total, class T>
__device__ __forceinline__ void write_folded(const ManyTermColumns& shape, const ThinOutput& output,
                                             uint32_t matrix, int64_t first_out, int32_t outs,
                                             const Total& total, T* y, float* table) {
  const auto columns = static_cast<int32_t>(shape.by_columns.divisor()), vectors = shape.of_a_row;
  if (shape.outs <= shape.width) {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < columns * vectors; i += Plan::kThreads) {
      uint32_t c;
      const auto v = static_cast<int32_t>(shape.by_columns.divide(static_cast<uint32_t>(i), c));
      float sum = 0;
      for (int32_t r = 0; r < shape.fold; ++r) {
        sum += total(r * vectors + v, r * columns + static_cast<int32_t>(c));
      }
      output.write(matrix, c, v, vectors, sum, y, table);
    }
    return;
  }
  for (auto o = static_cast<int32_t>(threadIdx.x); o < outs; o += Plan::kThreads) {
    uint32_t c;
    const auto r = static_cast<int32_t>(shape.by_columns.divide(static_cast<uint32_t>(first_out + o), c));
    for (int32_t v = 0; v < vectors; ++v) {
      output.write_part(int64_t{blockIdx.y} * shape.fold + r, matrix, c, v, vectors,
                        total(r * vectors + v, o), y, table);
    }
  }
}

/// Block (matrix and tile, part) of a ManyTermPlan.
template <class T, int units, bool dense>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    many_term_columns_kernel(const __grid_constant__ ManyTermColumns shape,
                             const __grid_constant__ ThinOutput output, const T* __restrict__ a,
                             const T* __restrict__ x, T* __restrict__ y, float* __restrict__ table) {
  using Rows = ClassRows<units>;
  constexpr int32_t kAhead = Plan::stages(units) - 1;  // rounds that are copied ahead
  constexpr uint32_t kSlot = Plan::kSlotBytes;
  extern __shared__ __align__(128) char column_memory[];
  cuda::let_next_begin();
  uint32_t tile;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile);
  a += matrix * shape.a_stride;
  x += matrix * shape.x_stride;
  const int64_t first_out = int64_t{tile} * shape.width;
  // Parts take rounds in turn, so that blocks read the same pages. The matrix's last round may be no whole
  // one, and has no row behind it: its block takes it first.
  const auto last = static_cast<int32_t>((shape.terms - 1) / Plan::kRound),
             part = static_cast<int32_t>(blockIdx.y), parts = static_cast<int32_t>(gridDim.y),
             count = (last - part) / parts + 1;
  const bool has_last = part + (count - 1) * parts == last;
  const auto last_terms = static_cast<int32_t>(shape.terms - int64_t{last} * Plan::kRound);
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(column_memory)),
             ring = shared + 2 * kSlot + static_cast<uint32_t>(warp()) * Rows::kRing;
  Rows rows(shape, a, first_out, part, ring);
  VectorTerms<T, dense> terms(shape, x, part, shared);
#pragma unroll
  for (int32_t i = 0; i < kAhead; ++i) {
    if (i == 0 && has_last) {
      rows.copy_last(last - part, (last_terms - warp() + Plan::kClasses - 1) / Plan::kClasses,
                     reinterpret_cast<uintptr_t>(a + shape.elements));
    } else if (i < count) {
      rows.copy();
    }
    end_copy_group();
  }
  terms.store(kSlot, true);
  if (has_last) {
    terms.load_last(last - part, last_terms, shape.last_vectors);
  } else {
    terms.load();
  }
  terms.store(0, true);
  if (count > 1) terms.load();
  const ClassUnits<units> own_units(shape, a, first_out, part, ring);
  uint32_t own_operand = shared + static_cast<uint32_t>(warp() * Plan::kOperandBytes + lane() * 16);
  own_operand = cuda::in_register(own_operand);
  float sums[units][4] = {};
  uint32_t stage = 0, slot = 0;
#pragma unroll 1
  for (int32_t left = count; left > 0; --left) {
    wait_for_copies<kAhead - 1>();
    __syncthreads();  // all have stored this round's terms, and used those of the last one
    if (left > kAhead) rows.copy();
    end_copy_group();
    slot ^= kSlot;
    if (left > 1) terms.store(slot, false);  // which were loaded a round ago
    if (left > 2) terms.load();
    multiply_step<T, units>(own_units, stage, own_operand + (slot ^ kSlot), sums);
    stage = stage + Rows::kStage == Rows::kRing ? 0 : stage + Rows::kStage;
  }
  __syncthreads();
  auto& memory = *reinterpret_cast<ColumnWarpSums<units>*>(column_memory);
  memory.put(sums, shape.vectors);
  __syncthreads();
  const auto outs = static_cast<int32_t>(min(int64_t{shape.width}, shape.outs - first_out));
  const auto step = static_cast<uint32_t>(shape.outs),
             shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(a + first_out) / sizeof(T));
  const auto total = [&](int32_t v, int32_t out) { return memory.total(v, out, shift, step); };
  if (shape.fold > 1) return write_folded(shape, output, matrix, first_out, outs, total, y, table);
  for (auto i = static_cast<int32_t>(threadIdx.x); i < 8 * units * shape.vectors; i += Plan::kThreads) {
    uint32_t v = static_cast<uint32_t>(i / (8 * units)), out = static_cast<uint32_t>(i % (8 * units));
    if (shape.interleaved) out = shape.by_vectors.divide(static_cast<uint32_t>(i), v);
    const auto o = static_cast<int32_t>(out), vector = static_cast<int32_t>(v);
    if (o >= outs) continue;
    output.write(matrix, first_out + o, vector, shape.vectors, total(vector, o), y, table);
  }
}

// ---- host

template <class T, int units>
void launch_plan(const Stream& stream, const ThinProblem& problem, const Plan& plan, const T* a, const T* x,
                 T* y, float* table, const ThinBias& bias) {
  const ThinProblem product = many_term_product(problem);
  const int fold = many_term_fold(problem);
  static_assert(sizeof(ColumnWarpSums<units>) <= static_cast<size_t>(Plan::shared_bytes(units)));
  const ManyTermColumns shape{
      .by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
      .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
      .by_columns = cuda::FastDivide(static_cast<uint32_t>(fold > 1 ? problem.columns : 1)),
      .outs = product.columns,
      .terms = product.rows,
      .elements = problem.rows * problem.columns,
      .a_stride = problem.a_stride,
      .x_stride = problem.x_stride,
      .x_vector = problem.x_vector,
      .x_element = product.x_element,
      .x_fold = problem.x_element,
      .vectors = product.vectors,
      .width = plan.width,
      .last_vectors = static_cast<int32_t>(problem.rows - (product.rows - 1) * fold) * problem.vectors,
      .fold = fold,
      .of_a_row = problem.vectors,
      .interleaved = plan.parts == 1 && problem.y_vector == 1};
  const int64_t parts = plan.parts * (fold > 1 && plan.tiles > 1 ? fold : 1);
  const ThinOutput output(problem, parts, bias);
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(Plan::kThreads),
      .shared_bytes = static_cast<size_t>(Plan::shared_bytes(units))};
  const auto launch = [&](auto kernel, cuda::MostSharedMemory& memory) {
    memory.allow(kernel, stream.device.index);
    cuda::launch(stream, grid, kernel, shape, output, a, x, y, table);
  };
  static cuda::MostSharedMemory dense, other;
  if (product.x_element == 1) {
    launch(many_term_columns_kernel<T, units, true>, dense);
  } else {
    launch(many_term_columns_kernel<T, units, false>, other);
  }
  fold_thin_parts<T>(stream, problem, output, table, y);
}

}  // namespace

template <class T>
void launch_many_term_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                              float* table, const ThinBias& bias) {
  Plan plan = many_term_plan_of(problem);
  const bool begins_with_units = cuda::is_aligned(a, 16) && (problem.batch == 1 || problem.a_stride % 8 == 0);
  const bool has_room = cuda::device_traits(stream.device.index).most_shared_bytes >=
                        size_t{Plan::shared_bytes(Plan::kWideUnits)};
  if (!begins_with_units || !has_room) {
    plan.cut(many_term_product(problem).columns, has_room ? plan.units : Plan::kNarrowUnits,
             begins_with_units);
  }
  if (plan.units == Plan::kWideUnits) {
    launch_plan<T, Plan::kWideUnits>(stream, problem, plan, a, x, y, table, bias);
  } else {
    launch_plan<T, Plan::kNarrowUnits>(stream, problem, plan, a, x, y, table, bias);
  }
}

template void launch_many_term_columns(const Stream&, const ThinProblem&, const float16*, const float16*,
                                       float16*, float*, const ThinBias&);
template void launch_many_term_columns(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                       bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
