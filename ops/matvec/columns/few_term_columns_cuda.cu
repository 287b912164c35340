// Thin products of the 16-bit types with several vectors that sum along few rows: what is loaded goes
// straight to tensor cores, and no warp shares anything.
#include <sinter/ops/matvec/columns/column_products_cuda.h>
#include <sinter/ops/matvec/plan/shifted_column_plan.h>
#include <sinter/ops/matvec/plan/unit_plan.h>

namespace sinter::ops {
namespace {

struct FewTermColumns {
  cuda::FastDivide by_blocks;
  ColumnProduct product;
  int64_t y_stride, y_vector;
  int32_t runs;       // of a warp, of one or two groups each
  bool interleaved;   // y has the vectors of an out side by side; else the outs of a vector
  bool whole_output;  // y's lines are whole units, aligned
};

/// A warp's sums on their way to y: `groups` times 64 columns, of which `count` are there. `to` is the
/// first's.
template <class T, class Packs, int groups>
struct ColumnSumsOut {
  using Sums = HalfSums<Packs::kOuts * groups>;

  const FewTermColumns& shape;
  int32_t count;
  uint16_t *shared, *to;

  __device__ __forceinline__ bool is_direct() const { return shape.whole_output && count == Sums::kOuts; }

  /// Those of group number i; lines that are not whole units wait for finish().
  __device__ __forceinline__ void put(const float (&sums)[8][4], int i) const {
    if (shape.interleaved) return write_interleaved(sums, Packs::kOuts * i);
    const bool direct = is_direct();
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int32_t v = Packs::group() + 8 * high;
      if (v >= shape.product.vectors) break;
      uint16_t* const line = direct ? to + v * shape.y_vector : shared + v * Sums::kLine;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        *reinterpret_cast<uint4*>(line + Packs::kOuts * i + Packs::first_sum(odd)) =
            round_columns<T>(sums, high, odd);
      }
    }
  }
  __device__ __forceinline__ void finish() const {
    if (shape.interleaved || is_direct()) return;
    __syncwarp();
    write_lines<Sums::kOuts>(shared, shape.product.vectors, count, to, shape.y_vector);
    __syncwarp();  // all are done with the shared memory
  }

 private:
  /// Eight columns' sums are `vectors` units, an odd number of which lies between one eight and the next: so
  /// lanes write to different banks.
  __device__ __forceinline__ void write_interleaved(const float (&sums)[8][4], int32_t first) const {
    const int32_t vectors = shape.product.vectors, pitch = (vectors | 1) * 8;
    const int32_t outs = min(count - first, Packs::kOuts);
    uint16_t* const target = to + first * vectors;
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int32_t v = Packs::group() + 8 * high;
      if (v >= vectors) break;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        uint16_t* const eight = shared + Packs::first_sum(odd) / 8 * pitch + v;
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          const uint32_t pair = round_pair<T>(sums[j][2 * high + odd], sums[j + 1][2 * high + odd]);
          eight[j * vectors] = static_cast<uint16_t>(pair);
          eight[(j + 1) * vectors] = static_cast<uint16_t>(pair >> 16);
        }
      }
    }
    __syncwarp();
    if (shape.whole_output && outs == Packs::kOuts) {
      // Sixteen lanes to an eight.
      const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), unit = lane % 16;
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) {
        const int32_t eight = 2 * i + lane / 16;
        if (unit >= vectors) continue;
        *reinterpret_cast<uint4*>(target + (eight * vectors + unit) * 8) =
            *reinterpret_cast<const uint4*>(shared + eight * pitch + unit * 8);
      }
    } else {
#pragma unroll 1
      for (int32_t i = 0; i < outs; i += 8) {
        write_run(shared + i / 8 * pitch, min(outs - i, 8) * vectors, target + i * vectors);
      }
    }
    __syncwarp();  // all are done with the shared memory
  }
};

/// All terms of 64 columns from `out` on, 16 at a time.
template <class T, bool whole, bool dense>
__device__ __forceinline__ void add_terms(const ColumnProduct& product, const T* a, const T* x, int64_t out,
                                          float (&sums)[8][4]) {
  using Packs = ColumnPacks<T, whole, 4>;
  constexpr int32_t kStep = 16;
  Packs packs;
  uint32_t vectors[4];
  int64_t term = 0;
  ColumnWalk<T, whole, dense> walk(product, a, x, out, term, kStep);
#pragma unroll 1
  for (; term + kStep < product.terms; term += kStep) {
    walk.load(packs);
    walk.load_vectors(vectors);
    packs.multiply(vectors, sums);
  }
  packs.load(product, a, out, term);
  Packs::load_vectors(product, x, term, vectors);
  packs.multiply(vectors, sums);
}

/// Block (matrix, groups) of a FewTermPlan: a warp takes groups, `ahead` neighbours together. `more`: there
/// are more than 16 terms.
template <class T, bool whole, int packs, int ahead, bool more, bool dense>
__global__ void __launch_bounds__(FewTermPlan::kThreads, whole && !more ? 3 : 2)
    few_term_columns_kernel(const __grid_constant__ FewTermColumns shape, const T* __restrict__ a,
                            const T* __restrict__ x, T* __restrict__ y) {
  using Packs = ColumnPacks<T, whole, packs>;
  using Out = ColumnSumsOut<T, Packs, ahead>;
  constexpr int32_t kWarps = FewTermPlan::kThreads / 32;
  __shared__ __align__(16) char shared[kWarps][Out::Sums::bytes(kMostStagedVectors)];
  const ColumnProduct& product = shape.product;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  uint32_t block;
  const uint32_t matrix = shape.by_blocks.divide(blockIdx.x, block);
  a += matrix * product.a_stride;
  x += matrix * product.x_stride;
  auto* const y_first = reinterpret_cast<uint16_t*>(y + matrix * shape.y_stride);
  uint32_t vectors[packs];
  if constexpr (!more) Packs::load_vectors(product, x, 0, vectors);
#pragma unroll 1
  for (int32_t run = 0; run < shape.runs; ++run) {
    // At any time the warps of a block read and write neighbours.
    const int64_t first = ((int64_t{block} * shape.runs + run) * kWarps + warp) * Out::Sums::kOuts;
    if (first >= product.outs) break;
    Packs loaded[ahead];
    if constexpr (!more) {
      const bool inside = Packs::is_inside(product, first + (ahead - 1) * Packs::kOuts);
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int64_t group = first + i * Packs::kOuts;
        if (inside) {
          loaded[i].load_inside(product, a, group);
        } else {
          loaded[i].load(product, a, group, 0);
        }
      }
    }
    const Out out{shape, static_cast<int32_t>(min(int64_t{Out::Sums::kOuts}, product.outs - first)),
                  reinterpret_cast<uint16_t*>(shared[warp]),
                  y_first + first * (shape.interleaved ? product.vectors : 1)};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (i * Packs::kOuts >= out.count) break;  // of the whole warp
      float sums[8][4] = {};
      if constexpr (more) {
        add_terms<T, whole, dense>(product, a, x, first, sums);
      } else {
        loaded[i].multiply(vectors, sums);
      }
      out.put(sums, i);
    }
    out.finish();
  }
}

// ---- host

template <class T, bool whole, int packs, int ahead, bool more, bool dense>
void launch_kernel(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  constexpr int64_t kWarps = FewTermPlan::kThreads / 32;
  const FewTermPlan plan = plan_few_terms(problem.batch, problem.out(), problem.vectors, sizeof(T));
  const auto runs = static_cast<int32_t>(detail::divide_up(plan.turns, ahead));
  const int64_t blocks = detail::divide_up(plan.groups, kWarps * ahead * runs);
  const int64_t line = problem.y_vector == 1 ? 0 : problem.y_vector, sums = problem.out() * problem.vectors;
  const bool whole_batch = problem.batch == 1 || sums % 8 == 0;
  const FewTermColumns shape{.by_blocks = cuda::FastDivide(static_cast<uint32_t>(blocks)),
                             .product = {problem.columns, problem.rows, problem.a_stride, problem.x_stride,
                                         problem.x_vector, problem.x_element, problem.vectors},
                             .y_stride = sums,
                             .y_vector = problem.y_vector,
                             .runs = runs,
                             .interleaved = problem.y_vector == 1,
                             .whole_output = cuda::is_aligned(y, 16) && line % 8 == 0 && whole_batch};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * blocks)),
                               .block = dim3(FewTermPlan::kThreads)};
  cuda::launch(stream, grid, few_term_columns_kernel<T, whole, packs, ahead, more, dense>, shape, a, x, y);
}

/// More terms than an instruction has.
template <class T, bool whole>
void launch_more(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  if (problem.x_element == 1) return launch_kernel<T, whole, 4, 1, true, true>(stream, problem, a, x, y);
  launch_kernel<T, whole, 4, 1, true, false>(stream, problem, a, x, y);
}

}  // namespace

template <class T>
void launch_few_term_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const bool whole_batch = problem.batch == 1 || problem.a_stride % 8 == 0;
  if (!cuda::is_aligned(a, 16) || problem.columns % 8 != 0 || !whole_batch) {
    if (problem.rows <= ShiftedColumnPlan::kMostTerms) {
      return launch_shifted_columns<T>(stream, problem, a, x, y);
    }
    return launch_more<T, false>(stream, problem, a, x, y);
  }
  if (problem.rows <= 8) return launch_kernel<T, true, 2, 2, false, false>(stream, problem, a, x, y);
  if (problem.rows <= 16) return launch_kernel<T, true, 4, 1, false, false>(stream, problem, a, x, y);
  launch_more<T, true>(stream, problem, a, x, y);
}

template void launch_few_term_columns(const Stream&, const ThinProblem&, const float16*, const float16*,
                                      float16*);
template void launch_few_term_columns(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                      bfloat16*);

}  // namespace sinter::ops
