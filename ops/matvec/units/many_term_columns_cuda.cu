// Thin products of the 16-bit types with several vectors that sum along many rows: the warps of a block share
// the terms of 64 columns, which go from memory straight to tensor cores, and add their sums at the end.
#include <sinter/ops/matvec/unit_plan.h>
#include <sinter/ops/matvec/units/column_products_cuda.h>

namespace sinter::ops {
namespace {

struct ManyTermColumns {
  cuda::FastDivide by_tiles, by_vectors;
  ColumnProduct product;
  int64_t part_terms;
  bool interleaved;  // y has the vectors of an out side by side
};

/// The sums of a block's warps: 64 of each vector.
struct ColumnWarpSums {
  static constexpr int32_t kWarps = ManyTermPlan::kThreads / 32, kLine = ManyTermPlan::kOuts + 4;

  float lines[kWarps][kMostStagedVectors][kLine];

  template <class Packs>
  __device__ __forceinline__ void put(const float (&sums)[8][4], int32_t vectors) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t v = Packs::group() + i / 2 * 8;
      if (v >= vectors) break;
      float* const to = lines[threadIdx.x / 32][v] + Packs::first_sum(i % 2);
      *reinterpret_cast<float4*>(to) = {sums[0][i], sums[1][i], sums[2][i], sums[3][i]};
      *reinterpret_cast<float4*>(to + 4) = {sums[4][i], sums[5][i], sums[6][i], sums[7][i]};
    }
  }
  __device__ __forceinline__ float total(int32_t v, int32_t out) const {
    float sum = 0;
#pragma unroll
    for (int32_t warp = 0; warp < kWarps; ++warp) sum += lines[warp][v][out];
    return sum;
  }
};

/// Block (matrix and tile, part) of a ManyTermPlan.
template <class T, bool whole, bool dense>
__global__ void __launch_bounds__(ManyTermPlan::kThreads, whole ? 3 : 2)
    many_term_columns_kernel(const __grid_constant__ ManyTermColumns shape,
                             const __grid_constant__ ThinOutput output, const T* __restrict__ a,
                             const T* __restrict__ x, T* __restrict__ y, float* __restrict__ table) {
  using Packs = ColumnPacks<T, whole, 4>;
  constexpr int32_t kStep = 16, kOuts = ManyTermPlan::kOuts;
  __shared__ __align__(16) ColumnWarpSums memory;
  cuda::let_next_begin();
  uint32_t tile;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile);
  const ColumnProduct& product = shape.product;
  a += matrix * product.a_stride;
  x += matrix * product.x_stride;
  const int64_t first_out = int64_t{tile} * kOuts, first = blockIdx.y * shape.part_terms;
  const int64_t end = min(first + shape.part_terms, product.terms);
  float sums[8][4] = {};
  int64_t term = first + threadIdx.x / 32 * kStep;
  ColumnWalk<T, whole, dense> walk(product, a, x, first_out, term, ManyTermPlan::round_terms());
#pragma unroll 1
  for (; term + kStep < product.terms && term < end; term += ManyTermPlan::round_terms()) {
    Packs packs;
    uint32_t vectors[4];
    walk.load(packs);
    walk.load_vectors(vectors);
    packs.multiply(vectors, sums);
  }
  if (term < end) {  // the last terms of all
    Packs packs;
    uint32_t vectors[4];
    packs.load(product, a, first_out, term);
    Packs::load_vectors(product, x, term, vectors);
    packs.multiply(vectors, sums);
  }
  memory.put<Packs>(sums, product.vectors);
  __syncthreads();
  const auto outs = static_cast<int32_t>(min(int64_t{kOuts}, product.outs - first_out));
  for (auto i = static_cast<int32_t>(threadIdx.x); i < kOuts * product.vectors; i += ManyTermPlan::kThreads) {
    uint32_t v = static_cast<uint32_t>(i / kOuts), out = static_cast<uint32_t>(i % kOuts);
    if (shape.interleaved) out = shape.by_vectors.divide(static_cast<uint32_t>(i), v);
    const auto o = static_cast<int32_t>(out), vector = static_cast<int32_t>(v);
    if (o >= outs) continue;
    output.write(matrix, first_out + o, vector, product.vectors, memory.total(vector, o), y, table);
  }
}

// ---- host

template <class T, bool whole>
void launch_plan(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y, float* table,
                 const ThinBias& bias) {
  const ManyTermPlan plan = plan_many_terms(problem.batch, problem.out(), problem.in(), problem.vectors);
  const ManyTermColumns shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                              .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
                              .product = {problem.columns, problem.rows, problem.a_stride, problem.x_stride,
                                          problem.x_vector, problem.x_element, problem.vectors},
                              .part_terms = plan.part_terms,
                              .interleaved = plan.parts == 1 && problem.y_vector == 1};
  const ThinOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(ManyTermPlan::kThreads)};
  if (problem.x_element == 1) {
    cuda::launch(stream, grid, many_term_columns_kernel<T, whole, true>, shape, output, a, x, y, table);
  } else {
    cuda::launch(stream, grid, many_term_columns_kernel<T, whole, false>, shape, output, a, x, y, table);
  }
  fold_thin_parts<T>(stream, problem, output, table, y);
}

}  // namespace

template <class T>
void launch_many_term_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                              float* table, const ThinBias& bias) {
  const bool whole_batch = problem.batch == 1 || problem.a_stride % 8 == 0;
  if (cuda::is_aligned(a, 16) && problem.columns % 8 == 0 && whole_batch) {
    return launch_plan<T, true>(stream, problem, a, x, y, table, bias);
  }
  launch_plan<T, false>(stream, problem, a, x, y, table, bias);
}

template void launch_many_term_columns(const Stream&, const ThinProblem&, const float16*, const float16*,
                                       float16*, float*, const ThinBias&);
template void launch_many_term_columns(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                       bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
