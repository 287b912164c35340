// Thin products of float32 with several vectors that sum along columns of some terms, on tensor cores in full
// precision (SplitFloat): a warp has 64 columns and walks down them, 16 terms at a time, copied to shared
// memory of its own in the units of 16 bytes that hold them, wherever rows begin.
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/plan/unit_plan.h>
#include <sinter/ops/matvec/staged/split_products_cuda.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>

namespace sinter::ops {
namespace {

constexpr int32_t kOuts = FloatColumnPlan::kOuts, kStep = FloatColumnPlan::kStep;
constexpr int32_t kLine = FloatColumnPlan::kLine, kSumLine = FloatColumnPlan::kSumLine;
constexpr int32_t kStages = FloatColumnPlan::kStages, kWarps = FloatColumnPlan::kThreads / 32;

struct FloatColumns {
  cuda::FastDivide by_tiles;
  int64_t outs;
  int32_t items, steps, terms;  // tiles of all matrices; of kStep terms
  int64_t a_stride, x_stride, x_vector, x_element, y_stride, y_vector;
  int64_t end;  // of the last matrix, in bytes
  int32_t vectors;
  bool interleaved;  // y has the vectors of an out side by side; else the outs of a vector
};

/// One tile of a warp: its first column, and how many it has.
struct ColumnItem {
  int64_t matrix, first_out;
  int32_t count;
  bool is_inside;  // columns go on behind it, more than a unit has

  __device__ __forceinline__ ColumnItem(const FloatColumns& shape, int32_t item) {
    uint32_t tile;
    matrix = shape.by_tiles.divide(static_cast<uint32_t>(item), tile);
    first_out = int64_t{tile} * kOuts;
    count = static_cast<int32_t>(min(int64_t{kOuts}, shape.outs - first_out));
    is_inside = first_out + kOuts + 4 <= shape.outs;
  }
};

/// The copies of a warp: lines of 64 columns, of kStep rows, of which lines begin anywhere in units.
struct ColumnCopier {
  uintptr_t end;
  int64_t pitch;
  uint64_t policy;

  static __device__ __forceinline__ uintptr_t unit_of(uintptr_t address) { return address & ~uintptr_t{15}; }

  /// From address `first` on, kStep lines of kOuts columns, and some more in their rows.
  __device__ __forceinline__ void copy_whole(uintptr_t first, uint32_t stage) const {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    uintptr_t begin = first + static_cast<uintptr_t>(lane / 16 * pitch + lane % 16 * 16);
    const uint32_t to = stage + static_cast<uint32_t>(4 * kLine * (lane / 16) + 16 * (lane % 16));
#pragma unroll
    for (int32_t i = 0; i < kStep / 2; ++i) {
      copy_unit<true>(to + static_cast<uint32_t>(8 * kLine * i), unit_of(begin), policy);
      begin += static_cast<uintptr_t>(2 * pitch);
    }
    const uintptr_t last = first + static_cast<uintptr_t>(lane % kStep * pitch);
    if (lane < kStep && (last & 15) != 0) {
      copy_unit<true>(stage + static_cast<uint32_t>(4 * (kLine * lane + kOuts)), unit_of(last) + 4 * kOuts,
                      policy);
    }
  }
  /// The same of `lines` of `count` columns; nothing is read behind the end.
  __device__ __forceinline__ void copy_some(uintptr_t first, int32_t lines, int32_t count,
                                            uint32_t stage) const {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll 1
    for (int32_t i = lane; i < 32 * lines; i += 32) {
      const int32_t line = i / 32, unit = i % 32;
      const uintptr_t begin = first + static_cast<uintptr_t>(line * pitch),
                      from = unit_of(begin) + static_cast<uintptr_t>(16 * unit);
      if (4 * unit >= count + static_cast<int32_t>(begin & 15) / 4) continue;
      const uint32_t to = stage + static_cast<uint32_t>(4 * kLine * line + 16 * unit);
      if (from + 16 <= end) {
        copy_unit<true>(to, from, policy);
        continue;
      }
#pragma unroll 1
      for (uint32_t j = 0; from + 4 * j < end; ++j) {
        asm volatile("st.shared.u32 [%0], %1;"
                     :
                     : "r"(to + 4 * j), "r"(*reinterpret_cast<const uint32_t*>(from + 4 * j))
                     : "memory");
      }
    }
  }
};

/// Lane 4 g + t has terms t, t + 4, t + 8 and t + 12 of a step: of vectors g and g + 8, and of columns g,
/// g + 8, and so on; of sums those of these vectors and columns 2 t and 2 t + 1 of each 8.
template <int groups>
struct ColumnTile {
  static constexpr int kTiles = kOuts / 8;

  float sums[kTiles][4];
  int32_t g = static_cast<int32_t>(threadIdx.x % 32 / 4), t = static_cast<int32_t>(threadIdx.x % 4);

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) sums[i / 4][i % 4] = 0;
  }

  /// A lane's elements of its vectors, or of another one, in a step; `element`: from one to the next.
  static __device__ __forceinline__ void load_vectors(const float* const (&from)[groups], int64_t element,
                                                      int32_t terms, float (&values)[groups][4]) {
#pragma unroll
    for (int n = 0; n < groups; ++n) {
      const float* at = from[n];
#pragma unroll
      for (int i = 0; i < 4; ++i, at += element) values[n][i] = 4 * i < terms ? __ldg(at) : 0.0F;
    }
  }

  /// `from`: where a lane's four terms lie; behind `terms` there may be anything.
  template <bool whole>
  __device__ __forceinline__ void step(const float* const (&from)[4], const float (&values)[groups][4],
                                       int32_t terms) {
    uint32_t left_high[2][4] = {}, left_low[2][4] = {};
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        SplitFloat halves;
        halves.split(values[n][i]);
        left_high[i / 2][n + i % 2 * 2] = halves.high;
        left_low[i / 2][n + i % 2 * 2] = halves.low;
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      float right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) right[i] = whole || t + 4 * i < terms ? from[i][8 * j] : 0.0F;
      uint32_t high[4], low[4];
      split_floats(right, high, low);
      float products[4];
      multiply_tf32(products, left_low[0], {high[0], high[1]});
      multiply_add_tf32(products, left_low[1], {high[2], high[3]});
#pragma unroll
      for (int k = 0; k < 2; ++k) multiply_add_tf32(products, left_high[k], {low[2 * k], low[2 * k + 1]});
#pragma unroll
      for (int k = 0; k < 2; ++k) multiply_add_tf32(products, left_high[k], {high[2 * k], high[2 * k + 1]});
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

  /// Whether the sums of `count` columns are finite; scales them back.
  __device__ __forceinline__ bool unscale(int32_t count) {
    float zero = 0;  // or NaN
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      float& sum = sums[i / 4][i % 4];
      if (out_of(i / 4, i % 4) < count) zero = fmaf(sum, 0.0F, zero);
      sum *= SplitFloat::kUnscale;
    }
    return __any_sync(kThinLanes, zero != 0.0F) == 0;
  }

  /// The same sums without tensor cores, of a matrix's columns from `a` on.
  __device__ __forceinline__ void add_plainly(const FloatColumns& shape, const float* a, const float* x,
                                              int32_t count) {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      const int32_t out = out_of(i / 4, i % 4), v = vector_of(i % 4);
      float sum = 0;
      if (out < count && v < shape.vectors) {
#pragma unroll 1
        for (int64_t term = 0; term < shape.terms; ++term) {
          sum += a[term * shape.outs + out] * x[v * shape.x_vector + term * shape.x_element];
        }
      }
      sums[i / 4][i % 4] = sum;
    }
  }

  /// To shared memory.
  __device__ __forceinline__ void put(float* to, int32_t out_step, int32_t vector_step,
                                      int32_t vectors) const {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      if (i % 4 / 2 >= groups || vector_of(i % 4) >= vectors) continue;
      to[out_of(i / 4, i % 4) * out_step + vector_of(i % 4) * vector_step] = sums[i / 4][i % 4];
    }
  }
};

/// A lane's sums of each vector, of which `count` lie in front of the end, to lines of y.
__device__ __forceinline__ void write_float_lines(const float* sums, int32_t vectors, int32_t count,
                                                  float* to, int64_t y_vector) {
#pragma unroll 4
  for (int32_t v = 0; v < vectors; ++v, sums += kSumLine, to += y_vector) {
#pragma unroll
    for (int32_t i = 0; i < kOuts; i += 32) {
      if (i < count) to[i] = sums[i];
    }
  }
}

/// Blocks of a FloatColumnPlan, whose warps share nothing: of its tiles, one after the other, the steps that
/// come next are copied while one is multiplied.
template <int groups>
__global__ void __launch_bounds__(FloatColumnPlan::kThreads, FloatColumnPlan::kBlocks)
    float_columns_kernel(const __grid_constant__ FloatColumns shape, const float* __restrict__ a,
                         const float* __restrict__ x, float* __restrict__ y) {
  extern __shared__ __align__(16) float column_memory[];
  const auto warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(threadIdx.x % 32);
  float* const stages = column_memory + warp * FloatColumnPlan::kWarpWords;
  float* const sums = stages + kStages * kStep * kLine;
  const auto stages_at = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const ColumnCopier copier{reinterpret_cast<uintptr_t>(a) + static_cast<uintptr_t>(shape.end),
                            shape.outs * 4, leaves_first()};
  const auto first_of = [&](const ColumnItem& item) {
    return reinterpret_cast<uintptr_t>(a + item.matrix * shape.a_stride + item.first_out);
  };
  const int32_t first_item = static_cast<int32_t>(blockIdx.x) * kWarps + warp,
                item_stride = static_cast<int32_t>(gridDim.x) * kWarps;
  // What is copied next.
  int32_t next_item = first_item, next_step = 0, free_stage = 0;
  ColumnItem next(shape, min(next_item, shape.items - 1));
  uintptr_t next_from = first_of(next);
  const auto copy_next = [&] {
    if (next_item < shape.items) {
      const uint32_t to = stages_at + static_cast<uint32_t>(free_stage * kStep * kLine * 4);
      const int32_t lines = min(kStep, shape.terms - next_step * kStep);
      if (next.is_inside && lines == kStep) {
        copier.copy_whole(next_from, to);
      } else {
        copier.copy_some(next_from, lines, next.count, to);
      }
      free_stage = free_stage + 1 == kStages ? 0 : free_stage + 1;
      next_from += static_cast<uintptr_t>(kStep * copier.pitch);
      if (++next_step == shape.steps) {
        next_step = 0;
        next_item += item_stride;
        if (next_item < shape.items) {
          next = ColumnItem(shape, next_item);
          next_from = first_of(next);
        }
      }
    }
    end_copy_group();
  };
#pragma unroll 1
  for (int i = 0; i + 1 < kStages; ++i) copy_next();
  int32_t stage = 0;
  ColumnTile<groups> tile;
  const int64_t element = 4 * shape.x_element;
#pragma unroll 1
  for (int32_t number = first_item; number < shape.items; number += item_stride) {
    const ColumnItem item(shape, number);
    const float *const matrix = a + item.matrix * shape.a_stride + item.first_out, *const vectors =
                                                                                       x + item.matrix *
                                                                                               shape.x_stride;
    int32_t places[4];  // of the lane's terms in a stage
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t line = tile.t + 4 * i;
      const auto begin = reinterpret_cast<uintptr_t>(matrix) + static_cast<uintptr_t>(line * copier.pitch);
      places[i] = cuda::in_register(line * kLine + static_cast<int32_t>(begin & 15) / 4 + tile.g);
    }
    float ahead[groups][4];
    const float* from[groups];
#pragma unroll
    for (int n = 0; n < groups; ++n) {
      from[n] = vectors + min(8 * n + tile.g, shape.vectors - 1) * shape.x_vector + tile.t * shape.x_element;
    }
    tile.load_vectors(from, element, shape.terms - tile.t, ahead);
    tile.clear();
#pragma unroll 1
    for (int32_t terms = shape.terms; terms > 0; terms -= kStep) {
      wait_for_copies<kStages - 2>();
      __syncwarp();  // the step is there for all, and all are done with the one before it
      copy_next();
      float values[groups][4];
#pragma unroll
      for (int i = 0; i < 4 * groups; ++i) values[i / 4][i % 4] = ahead[i / 4][i % 4];
#pragma unroll
      for (int n = 0; n < groups; ++n) from[n] += kStep * shape.x_element;
      tile.load_vectors(from, element, terms - kStep - tile.t, ahead);
      const float* const here = stages + stage * kStep * kLine;
      const float* const lines[4] = {here + places[0], here + places[1], here + places[2], here + places[3]};
      if (terms >= kStep) {
        tile.template step<true>(lines, values, kStep);
      } else {
        tile.template step<false>(lines, values, terms);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    if (!tile.unscale(item.count)) tile.add_plainly(shape, matrix, vectors, item.count);
    float* const out = y + item.matrix * shape.y_stride;
    if (shape.interleaved) {
      tile.put(sums, shape.vectors, 1, shape.vectors);
      __syncwarp();
      write_floats(sums, item.count * shape.vectors, out + item.first_out * shape.vectors);
    } else {
      tile.put(sums, 1, kSumLine, shape.vectors);
      __syncwarp();
      write_float_lines(sums + lane, shape.vectors, item.count - lane, out + item.first_out + lane,
                        shape.y_vector);
    }
    __syncwarp();  // all are done with the sums
  }
}

}  // namespace

template <class T>
void launch_float_columns(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const FloatColumnPlan plan = plan_float_columns(problem.batch, problem.columns, problem.rows);
  const FloatColumns shape{
      .by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
      .outs = problem.columns,
      .items = static_cast<int32_t>(problem.batch * plan.tiles),
      .steps = plan.steps,
      .terms = static_cast<int32_t>(problem.rows),
      .a_stride = problem.a_stride,
      .x_stride = problem.x_stride,
      .x_vector = problem.x_vector,
      .x_element = problem.x_element,
      .y_stride = problem.columns * problem.vectors,
      .y_vector = problem.y_vector,
      .end = ((problem.batch - 1) * problem.a_stride + problem.rows * problem.columns) * 4,
      .vectors = problem.vectors,
      .interleaved = problem.y_vector == 1};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(plan.blocks)),
                               .block = dim3(FloatColumnPlan::kThreads),
                               .shared_bytes = static_cast<size_t>(FloatColumnPlan::shared_bytes())};
  const auto launch = [&](auto kernel, cuda::MostSharedMemory& memory) {
    memory.allow(kernel, stream.device.index);
    cuda::launch(stream, grid, kernel, shape, a, x, y);
  };
  static cuda::MostSharedMemory few, many;
  if (problem.vectors <= 8) return launch(float_columns_kernel<1>, few);
  launch(float_columns_kernel<2>, many);
}

template void launch_float_columns(const Stream&, const ThinProblem&, const float*, const float*, float*);

}  // namespace sinter::ops
