// Thin products of float32 with several vectors that sum along many rows, on tensor cores in full precision
// (SplitFloat): a warp has a stretch of columns and takes their terms 16 at a time, from a ring in shared
// memory that it alone fills. Warps side by side or below each other meet only to add their sums.
//
// The vectors are the left operand, columns the right one. Lane 4 g + t has terms 4 t to 4 t + 3 of a step:
// rows 4 apart begin alike in their units of 16 bytes, however many columns there are, so that the words that
// lanes read lie in different banks wherever rows begin.
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/columns/column_ring_cuda.h>
#include <sinter/ops/matvec/staged/split_products_cuda.h>

namespace sinter::ops {
namespace {

constexpr int32_t kStep = FloatManyTermPlan::kStep, kQuad = FloatManyTermPlan::kQuad;

/// A warp's sums. `groups`: of 8 vectors. The upper half of an instruction's rows are the vectors g + 8; or
/// of one group the lower halves of its own, which saves every third instruction.
template <int quads, int groups>
struct ColumnSums {
  static constexpr int32_t kSumLine = kQuad * quads + 4;  // of a vector in shared memory

  float sums[4 * quads][4];
  int32_t g = static_cast<int32_t>(threadIdx.x % 32 / 4), t = static_cast<int32_t>(threadIdx.x % 4);

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 16 * quads; ++i) sums[i / 4][i % 4] = 0;
  }

  /// `from`: where the lane's terms lie; `values`: those of its vectors.
  __device__ __forceinline__ void add_step(const float* const (&from)[4], const float (&values)[groups][4]) {
    uint32_t high[2][4], low[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      SplitFloat halves;
      halves.split(values[0][i]);
      high[i / 2][i % 2 * 2] = halves.high;
      low[i / 2][i % 2 * 2] = halves.low;
      if constexpr (groups == 1) {
        high[i / 2][i % 2 * 2 + 1] = halves.low;
      } else {
        halves.split(values[groups - 1][i]);
        high[i / 2][i % 2 * 2 + 1] = halves.high;
        low[i / 2][i % 2 * 2 + 1] = halves.low;
      }
    }
#pragma unroll
    for (int j = 0; j < 4 * quads; ++j) {
      float right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) right[i] = from[i][8 * j];
      uint32_t right_high[4], right_low[4];
      split_floats(right, right_high, right_low);
      float products[4];
      multiply_tf32(products, high[0], {right_low[0], right_low[1]});
      multiply_add_tf32(products, high[1], {right_low[2], right_low[3]});
      if constexpr (groups == 2) {
        multiply_add_tf32(products, low[0], {right_high[0], right_high[1]});
        multiply_add_tf32(products, low[1], {right_high[2], right_high[3]});
      }
      multiply_add_tf32(products, high[0], {right_high[0], right_high[1]});
      multiply_add_tf32(products, high[1], {right_high[2], right_high[3]});
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] += products[i];
    }
  }

  __device__ __forceinline__ int32_t out_of(int j, int i) const {
    return 8 * j + 2 * t + i % 2;
  }
  __device__ __forceinline__ int32_t vector_of(int i) const {
    return g + i / 2 * 8;
  }

  /// Puts both halves together and scales them back; whether all sums of the warp's `count` columns are
  /// finite.
  __device__ __forceinline__ bool finish(int32_t count) {
    float zero = 0;  // or NaN
#pragma unroll
    for (int k = 0; k < 16 * quads; ++k) {
      const int j = k / 4, i = k % 4;
      if (i >= 2 * groups) continue;
      if constexpr (groups == 1) sums[j][i] += sums[j][i + 2];
      if (out_of(j, i) < count) zero = fmaf(sums[j][i], 0.0F, zero);
      sums[j][i] *= SplitFloat::kUnscale;
    }
    return __any_sync(kThinLanes, zero != 0.0F) == 0;
  }

  /// Takes sums in shared memory that are not finite again without tensor cores, of the `count` columns from
  /// `a` on.
  static __device__ __noinline__ void mend(float* lines, const FloatManyTerms& shape, const WarpSteps& steps,
                                           int32_t count, const float* a, const float* x) {
    __syncwarp();
    for (int32_t v = 0; v < shape.vectors; ++v) {
      for (auto out = static_cast<int32_t>(threadIdx.x % 32); out < count; out += 32) {
        float& sum = lines[v * kSumLine + out];
        if (fmaf(sum, 0.0F, 0.0F) != 0.0F) sum = sum_plainly(shape, steps, a + out, x + v * shape.x_vector);
      }
    }
  }
  static __device__ float sum_plainly(const FloatManyTerms& shape, const WarpSteps& steps, const float* a,
                                      const float* x) {
    float sum = 0;
#pragma unroll 1
    for (int32_t step = steps.first; step < shape.steps; step += shape.step_stride) {
      const int64_t first = int64_t{step} * kStep, end = min(first + kStep, shape.terms);
#pragma unroll 1
      for (int64_t term = first; term < end; ++term) sum += a[term * shape.outs] * x[term * shape.x_element];
    }
    return sum;
  }

  /// To lines of shared memory, one for each vector.
  __device__ __forceinline__ void put(float* lines, int32_t vectors) const {
#pragma unroll
    for (int i = 0; i < 2 * groups; i += 2) {
      if (vector_of(i) >= vectors) continue;
      float* const to = lines + vector_of(i) * kSumLine + 2 * t;
#pragma unroll
      for (int j = 0; j < 4 * quads; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) = {sums[j][i], sums[j][i + 1]};
      }
    }
  }
};

/// Adds the sums of `warps` warps with the same columns, `distance` words apart, and writes those that the
/// one of number `turn` has to.
template <int32_t line>
__device__ __forceinline__ void write_sums(const FloatManyTerms& shape, const ThinOutput& output,
                                           const WarpColumns& columns, const float* lines, int32_t turn,
                                           int32_t warps, int32_t distance, float* y, float* table) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const bool in_table = output.parts > 1;
  const auto total = [&](int32_t v, int32_t out) {
    const float* from = lines + v * line + out;
    float sum = *from;
#pragma unroll 1
    for (int32_t i = 1; i < warps; ++i) sum += *(from += distance);
    return in_table ? sum : with_bias<float>(output.bias, sum, columns.first + out, v);
  };
  if (shape.interleaved) {
    float* const to = y + columns.matrix * output.matrix + columns.first * output.element;
#pragma unroll 2
    for (int32_t i = 32 * turn + lane; i < columns.count * shape.vectors; i += 32 * warps) {
      uint32_t v;
      const uint32_t out = shape.by_vectors.divide(static_cast<uint32_t>(i), v);
      to[i] = total(static_cast<int32_t>(v), static_cast<int32_t>(out));
    }
    return;
  }
  const int64_t out_step = in_table ? 1 : output.element,
                vector_step = in_table ? output.all_outs : output.vector;
  float* const to = in_table ? table + blockIdx.y * shape.vectors * output.all_outs +
                                   columns.matrix * output.matrix_outs + columns.first
                             : y + columns.matrix * output.matrix + columns.first * output.element;
#pragma unroll 1
  for (int32_t v = turn; v < shape.vectors; v += warps) {
#pragma unroll 2
    for (int32_t out = lane; out < columns.count; out += 32) {
      to[v * vector_step + out * out_step] = total(v, out);
    }
  }
}

/// Blocks (tiles, part) of a FloatManyTermPlan: of warps that are all side by side, a block takes tile after
/// tile.
template <int quads, int groups>
__global__ void __launch_bounds__(FloatManyTermPlan::kThreads, 1)
    float_many_term_columns_kernel(const __grid_constant__ FloatManyTerms shape,
                                   const __grid_constant__ ThinOutput output, const float* __restrict__ a,
                                   const float* __restrict__ x, float* __restrict__ y,
                                   float* __restrict__ table) {
  using Ring = ColumnRing<quads>;
  using Sums = ColumnSums<quads, groups>;
  constexpr int32_t kStageWords = Ring::kStageBytes / 4, kRingWords = Ring::kStages * kStageWords;
  static_assert(16 * Sums::kSumLine <= kStageWords);
  extern __shared__ __align__(16) float ring_memory[];
  cuda::let_next_begin();
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t across = warp & ((1 << shape.log_across) - 1), below = warp >> shape.log_across;
  const int32_t rows_of_warps = FloatManyTermPlan::kWarps >> shape.log_across;
  float* const stages = ring_memory + warp * kRingWords;
  const WarpSteps steps(shape, below);
  Ring ring(shape, a, static_cast<uint32_t>(__cvta_generic_to_shared(stages)), steps, across);
#pragma unroll 1
  for (int i = 0; i + 1 < Ring::kStages; ++i) ring.copy_next();
  Sums tile;
  int32_t stage = 0;
#pragma unroll 1
  for (auto item = static_cast<int32_t>(blockIdx.x); item < shape.items;
       item += static_cast<int32_t>(gridDim.x)) {
    const WarpColumns columns(shape, item, across);
    const float* const matrix = a + columns.matrix * shape.a_stride + columns.first;
    const float* const vectors = x + columns.matrix * shape.x_stride;
    tile.clear();
    float* last = stages;
    if (columns.count > 0) {
      int32_t places[4];  // of the lane's terms in a stage
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto begin = reinterpret_cast<uintptr_t>(matrix) + static_cast<uintptr_t>(i * shape.outs * 4);
        places[i] = tile.t * Ring::kGroup + i * Ring::kLine + static_cast<int32_t>(begin & 15) / 4 + tile.g;
        asm volatile("" : "+r"(places[i]));  // which is not worked out once more in every step
      }
      const float* from[groups];
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        from[n] = vectors + min(8 * n + tile.g, shape.vectors - 1) * shape.x_vector +
                  (int64_t{steps.first} * kStep + 4 * tile.t) * shape.x_element;
      }
      int32_t step = steps.first;
      float ahead[groups][4];
      const auto load_vectors = [&] {
        const auto left = static_cast<int32_t>(
            max(min(shape.terms - int64_t{step} * kStep, int64_t{kStep}), int64_t{0}) - 4 * tile.t);
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          const float* at = from[n];
#pragma unroll
          for (int i = 0; i < 4; ++i, at += shape.x_element) ahead[n][i] = i < left ? __ldg(at) : 0.0F;
          from[n] += int64_t{shape.step_stride} * kStep * shape.x_element;
        }
        step += shape.step_stride;
      };
      load_vectors();
#pragma unroll 1
      for (int32_t i = 0; i < steps.count; ++i) {
        wait_for_copies<Ring::kStages - 2>();
        __syncwarp();  // the step is there for all, and all are done with the one before it
        ring.copy_next();
        float values[groups][4];
#pragma unroll
        for (int k = 0; k < 4 * groups; ++k) values[k / 4][k % 4] = ahead[k / 4][k % 4];
        load_vectors();
        const float* const here = stages + stage * kStageWords;
        const float* const lines[4] = {here + places[0], here + places[1], here + places[2],
                                       here + places[3]};
        tile.add_step(lines, values);
        last = stages + stage * kStageWords;
        stage = stage + 1 == Ring::kStages ? 0 : stage + 1;
      }
    }
    const bool is_alone = rows_of_warps == 1;
    if (is_alone && columns.count == 0) continue;
    if (!is_alone) wait_for_copies<0>();
    // All are done with the last step, to whose stage nothing is copied before the next item's first.
    float* const lines = is_alone ? last : stages;
    const bool is_finite = tile.finish(columns.count);
    __syncwarp();
    tile.put(lines, shape.vectors);
    if (!is_finite) Sums::mend(lines, shape, steps, columns.count, matrix, vectors);
    if (is_alone) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    write_sums<Sums::kSumLine>(shape, output, columns, is_alone ? lines : ring_memory + across * kRingWords,
                               below, rows_of_warps, kRingWords << shape.log_across, y, table);
    __syncwarp();  // all are done with the sums
  }
}

}  // namespace

template <class T>
void launch_float_many_term_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x,
                                    T* y, float* table, const ThinBias& bias) {
  const FloatManyTermPlan plan =
      plan_float_many_terms(problem.batch, problem.columns, problem.rows, problem.vectors);
  const int64_t items = problem.batch * plan.tiles;
  const int stride = static_cast<int>(plan.parts) * plan.below();
  const FloatManyTerms shape{
      .by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
      .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
      .by_stride = cuda::FastDivide(static_cast<uint32_t>(stride)),
      .outs = problem.columns,
      .terms = problem.rows,
      .a_stride = problem.a_stride,
      .x_stride = problem.x_stride,
      .x_vector = problem.x_vector,
      .x_element = problem.x_element,
      .end = ((problem.batch - 1) * problem.a_stride + problem.rows * problem.columns) * 4,
      .items = static_cast<int32_t>(items),
      .steps = static_cast<int32_t>(detail::divide_up(problem.rows, kStep)),
      .step_stride = stride,
      .width = plan.width,
      .log_across = plan.log_across,
      .vectors = problem.vectors,
      .interleaved = plan.parts == 1 && problem.y_vector == 1 && problem.y_element == problem.vectors};
  const ThinOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{
      .grid = dim3(static_cast<unsigned>(plan.blocks(items)), static_cast<unsigned>(plan.parts)),
      .block = dim3(FloatManyTermPlan::kThreads),
      .shared_bytes = static_cast<size_t>(FloatManyTermPlan::shared_bytes(plan.quads()))};
  const auto launch = [&]<int quads, int groups> {
    static cuda::MostSharedMemory memory;
    const auto kernel = float_many_term_columns_kernel<quads, groups>;
    memory.allow(kernel, stream.device.index);
    cuda::launch(stream, grid, kernel, shape, output, a, x, y, table);
  };
  const auto launch_quads = [&]<int quads> {
    if (problem.vectors <= 8) return launch.template operator()<quads, 1>();
    launch.template operator()<quads, 2>();
  };
  switch (plan.quads()) {
    case 1:
      launch_quads.template operator()<1>();
      break;
    case 2:
      launch_quads.template operator()<2>();
      break;
    case 3:
      launch_quads.template operator()<3>();
      break;
    default:
      launch_quads.template operator()<4>();
  }
  fold_thin_parts<T>(stream, problem, output, table, y);
}

template void launch_float_many_term_columns(const Stream&, const ThinProblem&, const float*, const float*,
                                             float*, float*, const ThinBias&);

}  // namespace sinter::ops
