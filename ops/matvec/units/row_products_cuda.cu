// Thin products of the 16-bit types with several vectors that sum along long rows, straight from memory to
// tensor cores: the warps of a block share the terms of some rows, and add their sums at the end.
//
// Rows begin anywhere in units of 16 bytes; those that begin alike are multiplied together, in the units that
// hold them, and the vectors are shifted to their units. Lane 4 g + t loads unit t of rows g and g + 8: 8
// terms, which it multiplies with the same 8 of vector g. Which terms an instruction calls neighbours does
// not matter as long as both operands mean the same.
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/unit_plan.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct RowProduct {
  cuda::FastDivide by_tiles, by_classes, by_vectors;
  int64_t outs, terms, steps;
  int64_t a_stride, x_stride, x_vector, x_element;
  int32_t vectors, log_row_warps;
};

/// A lane's rows, 2 of each of `sets`, and vectors, one of each of `groups`; `spans` times 64 terms at a
/// time. `dense`: the terms of a vector are neighbours; else its vectors are.
template <class T, int sets, int spans, int groups, bool dense>
struct RowTile {
  static constexpr int kRows = 16 * sets, kStep = 64 * spans, kUnits = 2 * spans;
  using Pack = LoadedPack<T, 8>;

  float sums[sets][groups][4];
  const T *rows[2 * sets], *vectors[groups];  // at term 0
  const T* end;                               // of the matrix
  int64_t terms, element;
  int32_t behind;  // elements of a row's first unit that lie in front of it

  static __device__ __forceinline__ int32_t group() { return static_cast<int32_t>(threadIdx.x % 32 / 4); }
  static __device__ __forceinline__ int32_t place() { return static_cast<int32_t>(threadIdx.x % 4); }

  /// Rows `first`, first + step (a power of two) and so on. Lanes without a row, or a vector, have another
  /// one.
  __device__ __forceinline__ RowTile(const RowProduct& shape, const T* a, const T* x, int64_t first,
                                     int32_t step)
      : end(a + shape.outs * shape.terms), terms(shape.terms), element(shape.x_element) {
#pragma unroll
    for (int i = 0; i < 2 * sets; ++i) {
      const int64_t row = first + (group() + 8 * i) * int64_t{step}, last = shape.outs - 1;
      rows[i] = a + (row <= last ? row : last - ((last - first) & (step - 1))) * terms;
    }
#pragma unroll
    for (int n = 0; n < groups; ++n) {
      vectors[n] = x + min(group() + 8 * n, shape.vectors - 1) * shape.x_vector;
    }
    behind = static_cast<int32_t>(reinterpret_cast<uintptr_t>(rows[0]) % 16 / 2);
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) sums[i / 4 / groups][i / 4 % groups][i % 4] = 0;
  }

  /// The first of a lane's terms in a step.
  __device__ __forceinline__ int64_t first_term(int64_t step) const {
    return step * kStep + 8 * place() - behind;
  }
  /// Whether all lanes' terms of a step exist, and units of a vector that hold them.
  __device__ __forceinline__ bool is_inside(int64_t step) const {
    return (step > 0 || behind == 0) && (step + 1) * kStep + 8 <= terms;
  }

  __device__ __forceinline__ void multiply(const Pack (&left)[2 * sets], const Pack (&right)[groups]) {
#pragma unroll
    for (int m = 0; m < sets; ++m) {
      const uint4 &first = left[2 * m].word, &second = left[2 * m + 1].word;
      const uint32_t low[4] = {first.x, second.x, first.y, second.y},
                     high[4] = {first.z, second.z, first.w, second.w};
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const uint4& with = right[n].word;
        multiply_add<T>(sums[m][n], low, {with.x, with.y});
        multiply_add<T>(sums[m][n], high, {with.z, with.w});
      }
    }
  }

  __device__ __forceinline__ void add_inside(int64_t step) {
    const int64_t term = first_term(step);
    Pack left[kUnits][2 * sets], right[kUnits][groups];
#pragma unroll
    for (int k = 0; k < kUnits; ++k) {
#pragma unroll
      for (int i = 0; i < 2 * sets; ++i) left[k][i].load_once(Pack::source(rows[i] + term + 32 * k));
    }
    if constexpr (dense) {
      ShiftedPack<T> shifted[kUnits][groups];
#pragma unroll
      for (int k = 0; k < kUnits; ++k) {
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          const auto from = reinterpret_cast<uintptr_t>(vectors[n] + term + 32 * k);
          shifted[k][n].shift = static_cast<uint32_t>(from) & 15;
          const auto* const unit = reinterpret_cast<const uint4*>(from - shifted[k][n].shift);
          shifted[k][n].low.load(unit);
          shifted[k][n].high.load(unit + 1);
        }
      }
#pragma unroll
      for (int k = 0; k < kUnits; ++k) {
#pragma unroll
        for (int n = 0; n < groups; ++n) right[k][n] = shifted[k][n].get();
      }
    } else {
#pragma unroll
      for (int k = 0; k < kUnits; ++k) {
#pragma unroll
        for (int n = 0; n < groups; ++n) right[k][n] = gather(vectors[n] + (term + 32 * k) * element);
      }
    }
#pragma unroll
    for (int k = 0; k < kUnits; ++k) multiply(left[k], right[k]);
  }

  /// The same of a step that holds a row's beginning or end.
  __device__ __forceinline__ void add_edge(int64_t step) {
#pragma unroll 1
    for (int k = 0; k < kUnits; ++k) {
      const int64_t term = first_term(step) + 32 * k;
      Pack left[2 * sets] = {}, right[groups] = {};
      if (term > -8 && term < terms) {
#pragma unroll
        for (int i = 0; i < 2 * sets; ++i) left[i] = load_edge(rows[i], term);
#pragma unroll
        for (int n = 0; n < groups; ++n) right[n] = gather_edge(vectors[n], term);
      }
      __syncwarp();
      multiply(left, right);
    }
  }

  __device__ __forceinline__ void put(float* to) const {
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) {
      const int m = i / 4 / groups, n = i / 4 % groups, j = i % 4;
      to[(16 * m + group() + j / 2 * 8) * 8 * groups + 8 * n + 2 * place() + j % 2] = sums[m][n][j];
    }
  }

 private:
  __device__ __forceinline__ Pack gather(const T* from) const {
    uint32_t bits[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) bits[j] = __ldg(reinterpret_cast<const uint16_t*>(from + j * element));
    return {uint4{bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                  bits[6] | bits[7] << 16}};
  }
  __device__ __forceinline__ Pack gather_edge(const T* vector, int64_t term) const {
    uint32_t bits[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t at = term + j;
      bits[j] = at >= 0 && at < terms ? uint32_t{vector[at * element].bits} : 0U;
    }
    return {uint4{bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                  bits[6] | bits[7] << 16}};
  }
  /// A unit of a row; what it holds of others is zero.
  __device__ __forceinline__ Pack load_edge(const T* row, int64_t term) const {
    ShiftedPack<T> unit = {};
    unit.template load<true>(row + term, end);  // which begins with a unit
    uint32_t* const words = reinterpret_cast<uint32_t*>(&unit.low.word);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int64_t at = term + 2 * w;
      words[w] &= (at >= 0 && at < terms ? 0xFFFFU : 0U) | (at + 1 >= 0 && at + 1 < terms ? 0xFFFF0000U : 0U);
    }
    return unit.low;
  }
};

/// Block (matrix, class and rows; part) of a RowProductPlan.
template <class T, int sets, int spans, int groups, bool dense>
__global__ void __launch_bounds__(RowProductPlan::kThreads, RowProductPlan::kBlocks)
    row_products_kernel(const __grid_constant__ RowProduct shape, const __grid_constant__ ThinOutput output,
                        const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y,
                        float* __restrict__ table) {
  using Tile = RowTile<T, sets, spans, groups, dense>;
  constexpr int32_t kWarps = RowProductPlan::kThreads / 32, kSlots = 8 * groups;
  __shared__ float sums[kWarps][Tile::kRows * kSlots];
  cuda::let_next_begin();
  uint32_t tile, row_class;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile);
  const uint32_t place = shape.by_classes.divide(tile, row_class);
  const auto classes = static_cast<int32_t>(shape.by_classes.divisor());
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t row_warps = 1 << shape.log_row_warps, row_warp = warp & (row_warps - 1);
  const int64_t first_place = ((int64_t{place} << shape.log_row_warps) + row_warp) * Tile::kRows;
  const int64_t first_row = row_class + first_place * classes;
  if (first_row < shape.outs) {
    Tile rows(shape, a + matrix * shape.a_stride, x + matrix * shape.x_stride, first_row, classes);
    // Parts take rounds in turn: all of them read the same few pages.
    const int32_t term_warps = kWarps >> shape.log_row_warps;
    const int64_t round = int64_t{gridDim.y} * term_warps;
#pragma unroll 1
    for (int64_t step = int64_t{blockIdx.y} * term_warps + (warp >> shape.log_row_warps); step < shape.steps;
         step += round) {
      if (rows.is_inside(step)) {
        rows.add_inside(step);
      } else {
        rows.add_edge(step);
      }
    }
    rows.put(sums[warp]);
  }
  __syncthreads();
  const int32_t count = shape.vectors * Tile::kRows << shape.log_row_warps;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += RowProductPlan::kThreads) {
    uint32_t v;
    const auto row = static_cast<int32_t>(shape.by_vectors.divide(static_cast<uint32_t>(i), v));
    const int64_t out = row_class + ((int64_t{place} << shape.log_row_warps) * Tile::kRows + row) * classes;
    if (out >= shape.outs) continue;
    float sum = 0;
    const int32_t of_warp = row / Tile::kRows, at = row % Tile::kRows * kSlots + static_cast<int32_t>(v);
    for (int32_t w = of_warp; w < kWarps; w += row_warps) sum += sums[w][at];
    output.write(matrix, out, static_cast<int>(v), shape.vectors, sum, y, table);
  }
}

// ---- host

template <class T, int sets, int spans, int groups>
void launch_plan(const Stream& stream, const ThinProblem& problem, const RowProductPlan& plan, const T* a,
                 const T* x, T* y, float* table, const ThinBias& bias) {
  const RowProduct shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                         .by_classes = cuda::FastDivide(static_cast<uint32_t>(plan.classes)),
                         .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
                         .outs = problem.rows,
                         .terms = problem.columns,
                         .steps = plan.steps,
                         .a_stride = problem.a_stride,
                         .x_stride = problem.x_stride,
                         .x_vector = problem.x_vector,
                         .x_element = problem.x_element,
                         .vectors = problem.vectors,
                         .log_row_warps = plan.log_row_warps};
  const ThinOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(RowProductPlan::kThreads)};
  const auto launch = [&](auto kernel) { cuda::launch(stream, grid, kernel, shape, output, a, x, y, table); };
  if (problem.x_element == 1) {
    launch(row_products_kernel<T, sets, spans, groups, true>);
  } else {
    launch(row_products_kernel<T, sets, spans, groups, false>);
  }
  fold_thin_parts<T>(stream, problem, output, table, y);
}

template <class T, int groups>
void launch_groups(const Stream& stream, const ThinProblem& problem, const RowProductPlan& plan, const T* a,
                   const T* x, T* y, float* table, const ThinBias& bias) {
  if (plan.sets == 1) return launch_plan<T, 1, 2, groups>(stream, problem, plan, a, x, y, table, bias);
  launch_plan<T, 2, 1, groups>(stream, problem, plan, a, x, y, table, bias);
}

}  // namespace

template <class T>
void launch_row_products(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                         float* table, const ThinBias& bias) {
  const RowProductPlan plan =
      plan_row_products(problem.batch, problem.rows, problem.columns, problem.vectors);
  if (problem.vectors <= 8) return launch_groups<T, 1>(stream, problem, plan, a, x, y, table, bias);
  launch_groups<T, 2>(stream, problem, plan, a, x, y, table, bias);
}

template void launch_row_products(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                                  float*, const ThinBias&);
template void launch_row_products(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                  bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
