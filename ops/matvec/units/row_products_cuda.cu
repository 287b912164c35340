// Thin products with several vectors that sum along long rows, in float32 and the 16-bit types, on tensor
// cores. A warp has some rows and, alone or with others of its block, their terms, 128 bytes of each row at a
// time: a step. Its lanes copy the next steps to shared memory while they multiply, so that loads in flight
// take no registers and no warp waits for another.
//
// Rows begin anywhere in units of 16 bytes; those that begin alike are multiplied together, in the units that
// hold them, and the vectors are moved to their units. Lane 4 g + t multiplies units t and 4 + t of rows g
// and g + 8 with the same units of vector g. Which terms an instruction calls neighbours does not matter as
// long as both operands mean the same.
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/staged/half_products_cuda.h>
#include <sinter/ops/matvec/staged/split_products_cuda.h>
#include <sinter/ops/matvec/units/row_vectors_cuda.h>

namespace sinter::ops {
namespace {

constexpr int32_t kStepBytes = RowProductPlan::kStepBytes;

/// Copies a tile's rows, a step at a time: lanes 8 r .. 8 r + 7 take units of rows r, r + 4 and so on. Units
/// of odd rows change places with those four further on, so that two rows' units lie in different banks.
template <class T>
struct RowCopier {
  static constexpr int32_t kPer = 16 / static_cast<int32_t>(sizeof(T));

  uintptr_t from, end;  // the lane's unit of the next step in its first row; the matrix
  int64_t stride;       // from a lane's row to its next
  int32_t rows;         // of the lane
  bool has_end;         // the tile has the matrix's last row

  /// From step `step` on.
  __device__ __forceinline__ void begin(const RowProduct& shape, const RowTilePlace& place, const T* a,
                                        int32_t behind, int32_t step) {
    const int32_t row = row_lane() / 8;
    const int64_t classes = shape.by_classes.divisor();
    from = reinterpret_cast<uintptr_t>(a + (place.first + row * classes) * shape.terms - behind) +
           static_cast<uintptr_t>(int64_t{step} * kStepBytes + 16 * (row_lane() % 8));
    end = reinterpret_cast<uintptr_t>(a + shape.outs * shape.terms);
    stride = 4 * classes * shape.terms * static_cast<int64_t>(sizeof(T));
    rows = (place.count - row + 3) / 4;
    has_end = place.first + (place.count - 1) * classes == shape.outs - 1;
  }

  /// The next step, that begins with term `first`, which is negative where a row's first unit begins before
  /// it. Goes on to the step `round` further.
  __device__ __forceinline__ void copy(const RowProduct& shape, int64_t first, int32_t round, uint32_t to,
                                       uint64_t policy) {
    const int32_t row = row_lane() / 8, unit = row_lane() % 8;
    uintptr_t source = from;
    from += static_cast<uintptr_t>(int64_t{round} * kStepBytes);
    const int64_t term = first + unit * kPer;
    if (term >= shape.terms || term + kPer <= 0) return;
    to += static_cast<uint32_t>(row * kStepBytes + 16 * (unit ^ (row % 2 * 4)));
    if (has_end && term + kPer > shape.terms) {
#pragma unroll 1
      for (int32_t i = 0; i < rows; ++i) {
        copy_part_of_unit(to, source, static_cast<uint32_t>(min(end - source, uintptr_t{16})));
        source += static_cast<uintptr_t>(stride);
        to += 4 * kStepBytes;
      }
      return;
    }
#pragma unroll 4
    for (int32_t i = 0; i < rows; ++i) {
      copy_unit<true>(to, source, policy);
      source += static_cast<uintptr_t>(stride);
      to += 4 * kStepBytes;
    }
  }
};

/// Ones in the bits of those of a unit's elements, the first of which is `term`, that lie in a row.
template <class T>
__device__ __forceinline__ uint4 bits_in_row(int64_t term, int64_t terms) {
  uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      words[w] = term + w >= 0 && term + w < terms ? ~0U : 0U;
    } else {
      const int64_t at = term + 2 * w;
      words[w] = (at >= 0 && at < terms ? 0xFFFFU : 0U) | (at + 1 >= 0 && at + 1 < terms ? 0xFFFF0000U : 0U);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

__device__ __forceinline__ uint4 operator&(const uint4& a, const uint4& b) {
  return {a.x & b.x, a.y & b.y, a.z & b.z, a.w & b.w};
}

/// The sums of a warp's 16 `sets` rows and 8 `groups` vectors.
template <class T, int sets, int groups, bool dense>
struct RowTile {
  static constexpr int32_t kRows = 16 * sets, kSlots = 8 * groups;
  static constexpr int32_t kPer = 16 / static_cast<int32_t>(sizeof(T)), kTerms = 8 * kPer;
  using Vectors = RowVectors<T, groups, dense>;
  static constexpr int32_t kLeftBytes = kRows * kStepBytes, kStageBytes = kLeftBytes + Vectors::kBytes;
  static constexpr int32_t kStages = RowProductPlan::stages(sets);
  static constexpr int32_t kWarpBytes = kStages * kStageBytes + kRows * kSlots * 4;  // with the sums

  float sums[sets][groups][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) sums[i / 4 / groups][i / 4 % groups][i % 4] = 0;
  }

  /// What a lane multiplies units k of its vectors with, in the order of `multiply`.
  struct Right {
    uint32_t high[groups][2][2], low[groups][2][2];  // of an instruction, of float32's small halves

    __device__ __forceinline__ void set(int n, const uint4& unit) {
      const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (sizeof(T) == 4) {
          SplitFloat halves;
          halves.split(__uint_as_float(words[w]));
          high[n][w / 2][w % 2] = halves.high;
          low[n][w / 2][w % 2] = halves.low;
        } else {
          high[n][w / 2][w % 2] = words[w];
        }
      }
    }
  };

  /// sums += units of rows g and g + 8 times those of vectors. float32 as SplitTile has it: sums of 16 terms,
  /// the small products first.
  __device__ __forceinline__ void multiply(float (&to)[groups][4], const uint4& first, const uint4& second,
                                           const Right& right) {
    const uint32_t units[2][4] = {{first.x, second.x, first.y, second.y},
                                  {first.z, second.z, first.w, second.w}};
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) multiply_add<T>(to[n], units[j], right.high[n][j]);
      }
    } else {
      uint32_t high[2][4], low[2][4];
      float products[groups][4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          SplitFloat halves;
          halves.split(__uint_as_float(units[j][i]));
          high[j][i] = halves.high;
          low[j][i] = halves.low;
        }
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          if (j == 0) {
            multiply_tf32(products[n], low[j], right.high[n][j]);
          } else {
            multiply_add_tf32(products[n], low[j], right.high[n][j]);
          }
          multiply_add_tf32(products[n], high[j], right.low[n][j]);
        }
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) multiply_add_tf32(products[n], high[j], right.high[n][j]);
#pragma unroll
        for (int i = 0; i < 4; ++i) to[n][i] += products[n][i];
      }
    }
  }

  /// A step in shared memory. `edge`: its units may hold what is no element of the row, which becomes zero.
  template <bool edge>
  __device__ __forceinline__ void add(const RowProduct& shape, const char* stage,
                                      const typename Vectors::Reader& reader, int64_t first) {
    const int32_t g = row_lane_g(), t = row_lane_t();
    const char* const rows = stage + g * kStepBytes;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint4 inside{};
      if (edge) inside = bits_in_row<T>(first + (4 * k + t) * kPer, shape.terms);
      Right right;
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const uint4 unit = reader.load(shape, stage + kLeftBytes, k, n);
        right.set(n, edge ? unit & inside : unit);
      }
      const int32_t at = ((4 * k + t) ^ (g % 2 * 4)) * 16;
#pragma unroll
      for (int m = 0; m < sets; ++m) {
        uint4 unit[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          unit[i] = *reinterpret_cast<const uint4*>(rows + (16 * m + 8 * i) * kStepBytes + at);
          if (edge) unit[i] = unit[i] & inside;
        }
        multiply(sums[m], unit[0], unit[1], right);
      }
    }
  }

  /// Sum i of tile rows 16 m .. 16 m + 15 and vectors 8 n .. 8 n + 7.
  static __device__ __forceinline__ int32_t row_of(int m, int i) {
    return 16 * m + row_lane_g() + i / 2 * 8;
  }
  static __device__ __forceinline__ int32_t vector_of(int n, int i) {
    return 8 * n + 2 * row_lane_t() + i % 2;
  }

  /// The sums as they are. Those of float32 that are not finite (an infinity times a low half that is zero,
  /// or what overflows when scaled) are taken again, without tensor cores.
  __device__ __forceinline__ void finish(const RowProduct& shape, const RowTilePlace& place, const T* a,
                                         const T* x, int32_t behind, int32_t first_step, int32_t round) {
    if constexpr (sizeof(T) == 4) {
      float zero = 0;  // or NaN
#pragma unroll
      for (int i = 0; i < sets * groups * 4; ++i) {
        const int m = i / 4 / groups;
        if (row_of(m, i % 4) < place.count) zero = fmaf(sums[m][i / 4 % groups][i % 4], 0.0F, zero);
      }
      const bool again = __any_sync(kThinLanes, zero != 0.0F);
#pragma unroll
      for (int i = 0; i < sets * groups * 4; ++i) {
        const int m = i / 4 / groups, n = i / 4 % groups;
        float& sum = sums[m][n][i % 4];
        sum = again ? plain_sum(shape, a, x, place, row_of(m, i % 4), vector_of(n, i % 4), behind, first_step,
                                round)
                    : sum * SplitFloat::kUnscale;
      }
    }
  }

  /// To shared memory: those of a row in kSlots.
  __device__ __forceinline__ void put(float* to) const {
#pragma unroll
    for (int i = 0; i < sets * groups * 4; ++i) {
      const int m = i / 4 / groups, n = i / 4 % groups;
      to[row_of(m, i % 4) * kSlots + vector_of(n, i % 4)] = sums[m][n][i % 4];
    }
  }

 private:
  static __device__ __noinline__ float plain_sum(const RowProduct& shape, const T* a, const T* x,
                                                 const RowTilePlace& place, int32_t row, int32_t v,
                                                 int32_t behind, int32_t first_step, int32_t round) {
    float sum = 0;
    if (row >= place.count || v >= shape.vectors) return sum;
    const T* const left = a + (place.first + int64_t{row} * shape.by_classes.divisor()) * shape.terms;
    const T* const right = x + v * shape.x_vector;
#pragma unroll 1
    for (int32_t step = first_step; step < shape.steps; step += round) {
      const int64_t first = int64_t{step} * kTerms - behind, last = min(first + kTerms, shape.terms);
#pragma unroll 1
      for (int64_t term = max(first, int64_t{0}); term < last; ++term) {
        sum += left[term] * right[term * shape.x_element];
      }
    }
    return sum;
  }
};

/// Steps of a warp's tiles, in order: every `round`-th of a tile, then those of the tile `stride` further on.
struct RowWalk {
  uint32_t tile, tiles, stride;
  int32_t step, first_step, round, steps;

  __device__ __forceinline__ bool is_valid() const { return tile < tiles && step < steps; }
  /// Whether the next tile begins.
  __device__ __forceinline__ bool next() {
    step += round;
    if (step < steps) return false;
    step = first_step;
    tile += stride;
    return true;
  }
};

/// A tile's sums, of `sharers` warps whose sums are `pitch` apart, by `threads` threads.
template <int slots, class T>
__device__ __forceinline__ void write_rows(const RowProduct& shape, const ThinOutput& output,
                                           const RowTilePlace& place, const float* sums, int32_t sharers,
                                           int32_t pitch, int32_t thread, int32_t threads, T* y,
                                           float* table) {
#pragma unroll 1
  for (int32_t i = thread; i < place.count * shape.vectors; i += threads) {
    uint32_t v;
    const auto row = static_cast<int32_t>(shape.by_vectors.divide(static_cast<uint32_t>(i), v));
    const float* const first = sums + row * slots + v;
    float sum = first[0];
    for (int32_t w = 1; w < sharers; ++w) sum += first[w * pitch];
    output.write(place.matrix, place.first + int64_t{row} * shape.by_classes.divisor(), static_cast<int>(v),
                 shape.vectors, sum, y, table);
  }
}

/// Blocks (tiles, part) of a RowProductPlan.
template <class T, int sets, int groups, bool dense>
__global__ void __launch_bounds__(32 * RowProductPlan::warps(sets), RowProductPlan::kBlocks)
    row_products_kernel(const __grid_constant__ RowProduct shape, const __grid_constant__ ThinOutput output,
                        const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y,
                        float* __restrict__ table) {
  using Tile = RowTile<T, sets, groups, dense>;
  constexpr int32_t kStages = Tile::kStages, kStage = Tile::kStageBytes, kSums = Tile::kRows * Tile::kSlots;
  extern __shared__ __align__(128) char row_memory[];
  cuda::let_next_begin();
  const auto warps = static_cast<int32_t>(blockDim.x / 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t row_warps = shape.row_warps, term_warps = warps / row_warps;
  char* const memory = row_memory + warp * kStages * kStage;
  auto* const sums = reinterpret_cast<float*>(row_memory + warps * kStages * kStage);
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const uint64_t policy = leaves_first();
  const int32_t row_warp = warp % row_warps, term_warp = warp / row_warps;
  const int32_t first_step = static_cast<int32_t>(blockIdx.y) * term_warps + term_warp;
  const int32_t round = static_cast<int32_t>(gridDim.y) * term_warps;
  const uint32_t first_tile = blockIdx.x * static_cast<uint32_t>(row_warps);
  RowWalk now{first_tile + static_cast<uint32_t>(row_warp),
              shape.tiles,
              gridDim.x * static_cast<uint32_t>(row_warps),
              first_step,
              first_step,
              round,
              shape.steps};
  RowWalk ahead = now;
  const auto behind_of = [&](const RowTilePlace& place) {
    const T* const row = a + place.matrix * shape.a_stride + place.first * shape.terms;
    const auto rest = static_cast<int32_t>(reinterpret_cast<uintptr_t>(row)) & (shape.unit_bytes - 1);
    return rest / static_cast<int32_t>(sizeof(T));
  };

  RowCopier<T> copier;
  typename Tile::Vectors vectors;
  int64_t copied_term = 0;  // the first of the step that is copied next
  const auto begin_copies = [&] {
    if (ahead.tile >= shape.tiles) return;
    const RowTilePlace place(shape, ahead.tile);
    const int32_t behind = behind_of(place);
    copier.begin(shape, place, a + place.matrix * shape.a_stride, behind, first_step);
    vectors.begin(shape, x + place.matrix * shape.x_stride, behind, first_step);
    copied_term = int64_t{first_step} * Tile::kTerms - behind;
  };
  const auto copy_next = [&](int32_t stage) {
    if (ahead.is_valid()) {
      const uint32_t at = to + static_cast<uint32_t>(stage * kStage);
      copier.copy(shape, copied_term, round, at, policy);
      // Units of vectors that begin in the middle of one reach behind the step.
      const bool edge = copied_term <= 0 || copied_term + Tile::kTerms + Tile::kPer > shape.terms;
      vectors.copy(shape, copied_term, round, at + Tile::kLeftBytes, edge);
      copied_term += int64_t{round} * Tile::kTerms;
      if (ahead.next()) begin_copies();
    }
    end_copy_group();
  };

  begin_copies();
#pragma unroll 1
  for (int32_t stage = 0; stage < kStages; ++stage) copy_next(stage);
  Tile tile;
  tile.clear();
  typename Tile::Vectors::Reader reader;
  int32_t stage = 0;
#pragma unroll 1
  for (; now.is_valid(); now.tile += now.stride) {
    const RowTilePlace place(shape, now.tile);
    const int32_t behind = behind_of(place);
    const T *const left = a + place.matrix * shape.a_stride, *const right = x + place.matrix * shape.x_stride;
    reader.begin(shape, right, behind);
    int64_t first = int64_t{first_step} * Tile::kTerms - behind;
#pragma unroll 1
    for (now.step = first_step; now.step < shape.steps; now.step += round) {
      wait_for_copies<kStages - 1>();
      __syncwarp();
      if (first < 0 || first + Tile::kTerms > shape.terms) {
        tile.template add<true>(shape, memory + stage * kStage, reader, first);
      } else {
        tile.template add<false>(shape, memory + stage * kStage, reader, first);
      }
      first += int64_t{round} * Tile::kTerms;
      __syncwarp();
      copy_next(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    now.step = first_step;
    tile.finish(shape, place, left, right, behind, first_step, round);
    if (term_warps > 1) break;
    tile.put(sums + warp * kSums);
    __syncwarp();
    write_rows<Tile::kSlots>(shape, output, place, sums + warp * kSums, 1, 0, row_lane(), 32, y, table);
    __syncwarp();
    tile.clear();
  }
  if (term_warps == 1) return;

  tile.put(sums + (row_warp * term_warps + term_warp) * kSums);
  __syncthreads();
#pragma unroll 1
  for (int32_t r = 0; r < row_warps; ++r) {
    if (first_tile + static_cast<uint32_t>(r) >= shape.tiles) return;
    const RowTilePlace place(shape, first_tile + static_cast<uint32_t>(r));
    write_rows<Tile::kSlots>(shape, output, place, sums + r * term_warps * kSums, term_warps, kSums,
                             static_cast<int32_t>(threadIdx.x), static_cast<int32_t>(blockDim.x), y, table);
  }
}

// ---- host

template <class T>
struct RowProductLaunch {
  const Stream& stream;
  const ThinProblem& problem;
  const RowProductPlan& plan;
  const T *a, *x;
  T* y;
  float* table;
  const ThinBias& bias;

  template <int sets, int groups, bool dense>
  void run() const {
    const auto kernel = row_products_kernel<T, sets, groups, dense>;
    static cuda::MostSharedMemory memory;
    memory.allow(kernel, stream.device.index);
    using Tile = RowTile<T, sets, groups, dense>;
    // Fewer warps where a block may have less shared memory than an H200's.
    const auto room = static_cast<int32_t>(cuda::device_traits(stream.device.index).most_shared_bytes);
    const int32_t most = std::clamp(room / Tile::kWarpBytes, 1, RowProductPlan::warps(sets));
    const int32_t row_warps = std::min(plan.row_warps, most), warps = most / row_warps * row_warps;
    const RowProduct shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                           .by_classes = cuda::FastDivide(static_cast<uint32_t>(plan.classes)),
                           .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
                           .outs = problem.rows,
                           .terms = problem.columns,
                           .a_stride = problem.a_stride,
                           .x_stride = problem.x_stride,
                           .x_vector = problem.x_vector,
                           .x_element = problem.x_element,
                           .tiles = static_cast<uint32_t>(problem.batch * plan.tiles),
                           .steps = static_cast<int32_t>(plan.steps),
                           .vectors = problem.vectors,
                           .row_warps = row_warps,
                           .tile_rows = static_cast<int32_t>(plan.tile_rows),
                           .unit_bytes = plan.unit_bytes};
    const ThinOutput output(problem, plan.parts, bias);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.parts)),
        .block = dim3(static_cast<unsigned>(32 * warps)),
        .shared_bytes = static_cast<size_t>(warps * Tile::kWarpBytes)};
    cuda::launch(stream, grid, kernel, shape, output, a, x, y, table);
    fold_thin_parts<T>(stream, problem, output, table, y);
  }
  template <int sets, int groups>
  void run_vectors() const {
    if (problem.x_element == 1) return run<sets, groups, true>();
    run<sets, groups, false>();
  }
  template <int sets>
  void run_groups() const {
    if (problem.vectors <= 8) return run_vectors<sets, 1>();
    run_vectors<sets, 2>();
  }
};

}  // namespace

template <class T>
void launch_row_products(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                         float* table, const ThinBias& bias) {
  const RowProductPlan plan = row_product_plan_of(problem);
  const RowProductLaunch<T> launch{stream, problem, plan, a, x, y, table, bias};
  if (plan.sets == 1) return launch.template run_groups<1>();
  if (plan.sets == 2) return launch.template run_groups<2>();
  launch.template run_groups<4>();
}

template void launch_row_products(const Stream&, const ThinProblem&, const float*, const float*, float*,
                                  float*, const ThinBias&);
template void launch_row_products(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                                  float*, const ThinBias&);
template void launch_row_products(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                  bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
