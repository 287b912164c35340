// Thin products of the 16-bit types with several vectors that sum along few rows: what is loaded goes
// straight to tensor cores, and no warp shares anything.
#include <sinter/ops/matvec/unit_plan.h>
#include <sinter/ops/matvec/units/column_products_cuda.h>

namespace sinter::ops {
namespace {

struct FewTermColumns {
  cuda::FastDivide by_blocks;
  ColumnProduct product;
  int64_t groups, y_stride, y_vector;
  int32_t turns;
  bool interleaved;   // y has the vectors of an out side by side; else the outs of a vector
  bool whole_output;  // y's lines are whole units, aligned
};

/// A warp's sums on their way to y, `to`, where `count` columns of the group's 64 are.
template <class T, class Packs>
struct ColumnSumsOut {
  const FewTermColumns& shape;
  int32_t count;
  uint16_t *shared, *to;

  /// 16 bytes of vector v from column `place` on.
  __device__ __forceinline__ void write(const float (&sums)[8][4]) const {
    if (shape.interleaved) return write_interleaved(sums);
    const bool direct = shape.whole_output && count == Packs::kOuts;
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int32_t v = Packs::group() + 8 * high;
      if (v >= shape.product.vectors) break;
      uint16_t* const line = direct ? to + v * shape.y_vector : shared + v * HalfSums::kLine;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        *reinterpret_cast<uint4*>(line + Packs::first_sum(odd)) = round_columns<T>(sums, high, odd);
      }
    }
    if (direct) return;
    __syncwarp();
    write_lines(shared, shape.product.vectors, count, to, shape.y_vector);
  }

 private:
  /// Eight columns' sums are `vectors` units, an odd number of which lies between one eight and the next: so
  /// lanes write to different banks.
  __device__ __forceinline__ void write_interleaved(const float (&sums)[8][4]) const {
    const int32_t vectors = shape.product.vectors, pitch = (vectors | 1) * 8;
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
    if (shape.whole_output && count == Packs::kOuts) {
      // Sixteen lanes to an eight.
      const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), unit = lane % 16;
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) {
        const int32_t eight = 2 * i + lane / 16;
        if (unit >= vectors) continue;
        *reinterpret_cast<uint4*>(to + (eight * vectors + unit) * 8) =
            *reinterpret_cast<const uint4*>(shared + eight * pitch + unit * 8);
      }
      return;
    }
#pragma unroll 1
    for (int32_t i = 0; i < count; i += 8) {
      write_run(shared + i / 8 * pitch, min(count - i, 8) * vectors, to + i * vectors);
    }
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

/// Block (matrix, groups) of a FewTermPlan: a warp takes group after group, `ahead` of them together. `more`:
/// there are more than 16 terms.
template <class T, bool whole, int packs, int ahead, bool more, bool dense>
__global__ void __launch_bounds__(FewTermPlan::kThreads, whole ? 3 : 2)
    few_term_columns_kernel(const __grid_constant__ FewTermColumns shape, const T* __restrict__ a,
                            const T* __restrict__ x, T* __restrict__ y) {
  using Packs = ColumnPacks<T, whole, packs>;
  constexpr int32_t kWarps = FewTermPlan::kThreads / 32;
  __shared__ __align__(16) char shared[kWarps][HalfSums::bytes(kMostStagedVectors)];
  const ColumnProduct& product = shape.product;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  uint32_t block;
  const uint32_t matrix = shape.by_blocks.divide(blockIdx.x, block);
  a += matrix * product.a_stride;
  x += matrix * product.x_stride;
  auto* const out = reinterpret_cast<uint16_t*>(y + matrix * shape.y_stride);
  const int64_t first_group = int64_t{block} * shape.turns * kWarps + warp;
  uint32_t vectors[packs];
  if constexpr (!more) Packs::load_vectors(product, x, 0, vectors);
#pragma unroll 1
  for (int32_t turn = 0; turn < shape.turns; turn += ahead) {
    Packs loaded[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int64_t group = first_group + int64_t{turn + i} * kWarps;
      if (!more && turn + i < shape.turns) loaded[i].load(product, a, group * Packs::kOuts, 0);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int64_t group = first_group + int64_t{turn + i} * kWarps, first = group * Packs::kOuts;
      if (turn + i >= shape.turns || group >= shape.groups) break;  // of the whole warp
      float sums[8][4] = {};
      if constexpr (more) {
        add_terms<T, whole, dense>(product, a, x, first, sums);
      } else {
        loaded[i].multiply(vectors, sums);
      }
      const auto count = static_cast<int32_t>(min(int64_t{Packs::kOuts}, product.outs - first));
      uint16_t* const to = out + first * (shape.interleaved ? product.vectors : 1);
      ColumnSumsOut<T, Packs>{shape, count, reinterpret_cast<uint16_t*>(shared[warp]), to}.write(sums);
      __syncwarp();  // all are done with the group's shared memory
    }
  }
}

// ---- host

template <class T, bool whole>
void launch_plan(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const FewTermPlan plan = plan_few_terms(problem.batch, problem.out(), problem.vectors, sizeof(T));
  const int64_t line = problem.y_vector == 1 ? 0 : problem.y_vector, sums = problem.out() * problem.vectors;
  const bool whole_batch = problem.batch == 1 || sums % 8 == 0;
  const FewTermColumns shape{.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks)),
                             .product = {problem.columns, problem.rows, problem.a_stride, problem.x_stride,
                                         problem.x_vector, problem.x_element, problem.vectors},
                             .groups = plan.groups,
                             .y_stride = sums,
                             .y_vector = problem.y_vector,
                             .turns = plan.turns,
                             .interleaved = problem.y_vector == 1,
                             .whole_output = cuda::is_aligned(y, 16) && line % 8 == 0 && whole_batch};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.blocks)),
                               .block = dim3(FewTermPlan::kThreads)};
  const auto launch = [&](auto kernel) { cuda::launch(stream, grid, kernel, shape, a, x, y); };
  if (problem.rows <= 8) return launch(few_term_columns_kernel<T, whole, 2, 2, false, false>);
  if (problem.rows <= 16) return launch(few_term_columns_kernel<T, whole, 4, 1, false, false>);
  if (problem.x_element == 1) return launch(few_term_columns_kernel<T, whole, 4, 1, true, true>);
  launch(few_term_columns_kernel<T, whole, 4, 1, true, false>);
}

}  // namespace

template <class T>
void launch_few_term_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const bool whole_batch = problem.batch == 1 || problem.a_stride % 8 == 0;
  if (cuda::is_aligned(a, 16) && problem.columns % 8 == 0 && whole_batch) {
    return launch_plan<T, true>(stream, problem, a, x, y);
  }
  launch_plan<T, false>(stream, problem, a, x, y);
}

template void launch_few_term_columns(const Stream&, const ThinProblem&, const float16*, const float16*,
                                      float16*);
template void launch_few_term_columns(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                      bfloat16*);

}  // namespace sinter::ops
