// Thin products of the 16-bit types with several vectors that sum along many rows: the warps of a block share
// the terms of 64 columns, which go to tensor cores straight from memory, or through steps in shared memory
// of each warp if rows are whole units, and add their sums at the end.
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
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

/// The steps of a warp in shared memory, kStages of them in flight or in use, of rows that are whole units: a
/// lane copies its units and reads them itself. (Shifted rows, whose lanes would read two units each, are as
/// fast without.)
template <class T>
struct ColumnSteps {
  using Packs = ColumnPacks<T, true, 4>;
  static constexpr int32_t kStages = 5, kUnits = 4 * 32;  // of a step

  const uint4* stages;  // the lane's
  uint32_t to;          // shared address of the stage that is copied next
  uintptr_t rows[4];
  bool takes;
  int64_t row_step;
  int32_t copied = 0, used = 0;  // stages
  uint64_t policy = leaves_first();

  /// From the term `term` of column `out` on.
  __device__ __forceinline__ ColumnSteps(const ColumnProduct& shape, const T* a, int64_t out, int64_t term,
                                         int64_t step, const uint4* memory)
      : stages(memory + threadIdx.x % 32),
        to(static_cast<uint32_t>(__cvta_generic_to_shared(stages))),
        takes(out + Packs::first_out() < shape.outs),
        row_step(step * shape.outs * 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] =
          reinterpret_cast<uintptr_t>(a + (term + Packs::term_of(i)) * shape.outs + out + Packs::first_out());
    }
  }

  __device__ __forceinline__ void copy() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (takes) copy_unit<true>(to + 16 * 32 * i, rows[i], policy);
      rows[i] += static_cast<uintptr_t>(row_step);
    }
    const bool last = ++copied == kStages;
    to += static_cast<uint32_t>(last ? -16 * (kUnits * (kStages - 1)) : 16 * kUnits);
    if (last) copied = 0;
  }
  /// The lane's packs of the step that was copied first.
  __device__ __forceinline__ void take(Packs& packs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) packs.loaded[i].word = stages[used * kUnits + 32 * i];
    used = used + 1 == kStages ? 0 : used + 1;
  }
};

/// Block (matrix and tile, part) of a ManyTermPlan.
template <class T, bool whole, bool dense>
__global__ void __launch_bounds__(ManyTermPlan::kThreads, ManyTermPlan::kBlocks)
    many_term_columns_kernel(const __grid_constant__ ManyTermColumns shape,
                             const __grid_constant__ ThinOutput output, const T* __restrict__ a,
                             const T* __restrict__ x, T* __restrict__ y, float* __restrict__ table) {
  using Packs = ColumnPacks<T, whole, 4>;
  constexpr int32_t kStep = 16, kOuts = ManyTermPlan::kOuts;
  extern __shared__ __align__(16) uint4 column_memory[];
  auto& memory = *reinterpret_cast<ColumnWarpSums*>(column_memory);  // once no steps are there
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
  if constexpr (whole) {
    using Steps = ColumnSteps<T>;
    Steps steps(product, a, first_out, term, ManyTermPlan::round_terms(),
                column_memory + threadIdx.x / 32 * (Steps::kStages * Steps::kUnits));
    const int64_t behind = min(end, product.terms - kStep);
    const auto count =
        static_cast<int32_t>(term < behind ? (behind - term - 1) / ManyTermPlan::round_terms() + 1 : 0);
#pragma unroll 1
    for (int32_t i = 0; i + 1 < Steps::kStages; ++i) {
      if (i < count) steps.copy();
      end_copy_group();
    }
    uint32_t ahead[4] = {};
    if (count > 0) walk.load_vectors(ahead);
#pragma unroll 1
    for (int32_t i = 0; i < count; ++i) {
      wait_for_copies<Steps::kStages - 2>();
      if (i + Steps::kStages - 1 < count) steps.copy();
      end_copy_group();
      const uint32_t vectors[4] = {ahead[0], ahead[1], ahead[2], ahead[3]};
      if (i + 1 < count) walk.load_vectors(ahead);
      Packs packs;
      steps.take(packs);
      packs.multiply(vectors, sums);
    }
    term += count * ManyTermPlan::round_terms();
  } else {
#pragma unroll 1
    for (; term + kStep < product.terms && term < end; term += ManyTermPlan::round_terms()) {
      Packs packs;
      uint32_t vectors[4];
      walk.load(packs);
      walk.load_vectors(vectors);
      packs.multiply(vectors, sums);
    }
  }
  if (term < end) {  // the last terms of all
    Packs packs;
    uint32_t vectors[4];
    packs.load(product, a, first_out, term);
    Packs::load_vectors(product, x, term, vectors);
    packs.multiply(vectors, sums);
  }
  __syncthreads();  // all are done with their steps
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
  constexpr size_t kSteps =
      size_t{16} * ColumnSteps<T>::kStages * ColumnSteps<T>::kUnits * ColumnWarpSums::kWarps;
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(ManyTermPlan::kThreads),
      .shared_bytes = std::max(sizeof(ColumnWarpSums), whole ? kSteps : 0)};
  const auto launch = [&](auto kernel, cuda::MostSharedMemory& memory) {
    memory.allow(kernel, stream.device.index);
    cuda::launch(stream, grid, kernel, shape, output, a, x, y, table);
  };
  static cuda::MostSharedMemory dense, other;
  if (problem.x_element == 1) {
    launch(many_term_columns_kernel<T, whole, true>, dense);
  } else {
    launch(many_term_columns_kernel<T, whole, false>, other);
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
