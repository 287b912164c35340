// Thin products with several vectors that sum along long rows, in float32 and the 16-bit types, on tensor
// cores. A warp has some rows and, alone or with others of its block, their terms, 128 bytes of each row at a
// time: a step. Its lanes copy the next steps to shared memory while they multiply, so that loads in flight
// take no registers and no warp waits for another.
//
// Rows begin anywhere in units of 16 bytes; those that begin alike are multiplied together, in the units that
// hold them, and the vectors are moved to their units.
#include <sinter/ops/matvec/units/row_product_tile_cuda.h>

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
  RowStepWalk now{first_tile + static_cast<uint32_t>(row_warp),
                  shape.tiles,
                  gridDim.x * static_cast<uint32_t>(row_warps),
                  first_step,
                  first_step,
                  round,
                  shape.steps};
  RowStepWalk ahead = now;

  RowCopier<T> copier;
  typename Tile::Vectors vectors;
  int64_t copied_term = 0;  // the first of the step that is copied next
  const auto begin_copies = [&] {
    if (ahead.tile >= shape.tiles) return;
    const RowTilePlace place(shape, ahead.tile);
    const int32_t behind = elements_behind(shape, place, a);
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
    const int32_t behind = elements_behind(shape, place, a);
    const T *const left = a + place.matrix * shape.a_stride, *const right = x + place.matrix * shape.x_stride;
    reader.begin(shape, right, behind);
    int64_t first = int64_t{first_step} * Tile::kTerms - behind;
#pragma unroll 1
    for (now.step = first_step; now.step < shape.steps; now.step += round) {
      wait_for_copies<kStages - 1>();
      __syncwarp();
      const char* const step = memory + stage * kStage;
      tile.add_step(shape, step, step + Tile::kLeftBytes, reader, first);
      first += int64_t{round} * Tile::kTerms;
      __syncwarp();
      copy_next(stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    now.step = first_step;
    tile.finish(shape, place, left, right, behind, first_step, shape.steps, round);
    if (term_warps > 1) break;
    tile.put(sums + warp * kSums);
    __syncwarp();
    write_row_sums<Tile::kSlots>(shape, output, place, sums + warp * kSums, 1, 0, row_lane(), 32, y, table);
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
    write_row_sums<Tile::kSlots>(shape, output, place, sums + r * term_warps * kSums, term_warps, kSums,
                                 static_cast<int32_t>(threadIdx.x), static_cast<int32_t>(blockDim.x), y,
                                 table);
  }
}

// ---- host

struct StepsInTurn {
  template <class T, int sets, int groups, bool dense>
  static auto kernel() {
    return row_products_kernel<T, sets, groups, dense>;
  }
  template <class Tile>
  static constexpr int32_t warp_bytes() {
    return Tile::kWarpBytes;
  }
};

}  // namespace

template <class T>
void launch_row_products(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                         float* table, const ThinBias& bias) {
  const RowProductPlan plan = row_product_plan_of(problem);
  if (plan.by_lines) {
    return launch_row_products_by_lines(stream, problem, plan, a, x, y, table, bias);
  }
  RowProductLaunch<T, StepsInTurn>{stream, problem, plan, a, x, y, table, bias}.run();
}

template void launch_row_products(const Stream&, const ThinProblem&, const float*, const float*, float*,
                                  float*, const ThinBias&);
template void launch_row_products(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                                  float*, const ThinBias&);
template void launch_row_products(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*,
                                  bfloat16*, float*, const ThinBias&);

}  // namespace sinter::ops
