// Products along long rows as in row_products_cuda.cu, of large matrices whose rows begin anywhere in the
// lines of 128 bytes that memory has. A warp copies whole lines, each once, wherever their units belong:
// pieces of two lines each are read at three quarters of that speed. Warps that share a tile have runs of its
// steps.
#include <sinter/ops/matvec/units/row_product_tile_cuda.h>

namespace sinter::ops {
namespace {

constexpr int32_t kStepBytes = RowProductPlan::kStepBytes;

/// Copies a run of steps of a tile's rows: lanes 8 r .. 8 r + 7 take a line of rows r, r + 4 and so on, of
/// which every other begins alike in its line. Line l of a row ends step l - 1 and begins step l, both in
/// shared memory, where units lie as row_products_cuda.cu has them.
template <class T>
struct LineCopier {
  static constexpr int32_t kPer = 16 / static_cast<int32_t>(sizeof(T)), kLineUnits = kStepBytes / 16;

  uintptr_t from[2], end;  // the lane's unit of the next line in its first two rows; the matrix
  int64_t stride;          // from a row to the next but one
  int32_t unit[2];         // from the line's step on: negative in the step before
  int32_t at[2];           // the same, of the row
  int32_t rows;            // of the lane
  int32_t first_unit, end_unit, last_unit;  // of the run; the row's last one, if it is the matrix's

  /// Steps `first_step` to `last_step`, without it.
  __device__ __forceinline__ void begin(const RowProduct& shape, const RowTilePlace& place, const T* a,
                                        int32_t behind, int32_t first_step, int32_t last_step) {
    const int32_t row = row_lane() / 8, place_in_line = row_lane() % 8;
    const int64_t classes = shape.by_classes.divisor();
    const int64_t next = 4 * classes * shape.terms * static_cast<int64_t>(sizeof(T));
    const auto first = reinterpret_cast<uintptr_t>(a + (place.first + row * classes) * shape.terms - behind);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const uintptr_t begin = first + static_cast<uintptr_t>(odd * next);
      from[odd] = (begin & ~uintptr_t{kStepBytes - 1}) +
                  static_cast<uintptr_t>(int64_t{first_step} * kStepBytes + 16 * place_in_line);
      unit[odd] = place_in_line - static_cast<int32_t>(begin / 16 % kLineUnits);
      at[odd] = first_step * kLineUnits + unit[odd];
    }
    end = reinterpret_cast<uintptr_t>(a + shape.outs * shape.terms);
    stride = 2 * next;
    rows = (place.count - row + 3) / 4;
    const auto units = static_cast<int32_t>((shape.terms + behind + kPer - 1) / kPer);
    first_unit = first_step * kLineUnits;
    end_unit = min(last_step * kLineUnits, units);
    last_unit = place.first + (place.count - 1) * classes == shape.outs - 1 ? units - 1 : -1;
  }

  /// The next line, to the steps in `before` and `here`.
  __device__ __forceinline__ void copy(uint32_t before, uint32_t here, uint64_t policy) {
    const int32_t row = row_lane() / 8;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      uintptr_t source = from[odd];
      from[odd] += kStepBytes;
      const int32_t number = at[odd], count = (rows + 1 - odd) / 2;
      at[odd] += kLineUnits;
      if (number < first_unit || number >= end_unit) continue;
      uint32_t to = (unit[odd] < 0 ? before : here) +
                    static_cast<uint32_t>((row + 4 * odd) * kStepBytes +
                                          16 * ((unit[odd] & (kLineUnits - 1)) ^ (row % 2 * 4)));
      if (number == last_unit) {
#pragma unroll 1
        for (int32_t i = 0; i < count; ++i) {
          copy_part_of_unit(to, source, static_cast<uint32_t>(min(end - source, uintptr_t{16})));
          source += static_cast<uintptr_t>(stride);
          to += 8 * kStepBytes;
        }
        continue;
      }
#pragma unroll 4
      for (int32_t i = 0; i < count; ++i) {
        copy_unit<true>(to, source, policy);
        source += static_cast<uintptr_t>(stride);
        to += 8 * kStepBytes;
      }
    }
  }
};

/// Blocks (tiles, part) of a RowProductPlan.
template <class T, int sets, int groups, bool dense>
__global__ void __launch_bounds__(32 * RowProductPlan::warps(sets), RowProductPlan::kBlocks)
    row_products_by_lines_kernel(const __grid_constant__ RowProduct shape,
                                 const __grid_constant__ ThinOutput output, const T* __restrict__ a,
                                 const T* __restrict__ x, T* __restrict__ y, float* __restrict__ table) {
  using Tile = RowTile<T, sets, groups, dense>;
  constexpr int32_t kStages = Tile::kStages, kLineStages = Tile::kLineStages;
  constexpr int32_t kLeft = Tile::kLeftBytes, kRight = Tile::Vectors::kBytes, kWarp = Tile::kLineWarpBytes;
  static_assert(RowProductPlan::line_warps(sets, 8 * groups) * kWarp <= 227 * 1024);
  extern __shared__ __align__(128) char row_memory[];
  cuda::let_next_begin();
  const auto warps = static_cast<int32_t>(blockDim.x / 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t row_warps = shape.row_warps, term_warps = warps / row_warps;
  const int32_t row_warp = warp / term_warps, term_warp = warp % term_warps;
  char* const left_memory = row_memory + warp * kWarp;
  char* const right_memory = left_memory + kLineStages * kLeft;
  const auto to_left = static_cast<uint32_t>(__cvta_generic_to_shared(left_memory));
  const auto to_right = static_cast<uint32_t>(__cvta_generic_to_shared(right_memory));
  const uint64_t policy = leaves_first();
  const int32_t runs = static_cast<int32_t>(gridDim.y) * term_warps, run_steps = (shape.steps - 1) / runs + 1;
  const int32_t first_step = (static_cast<int32_t>(blockIdx.y) * term_warps + term_warp) * run_steps;
  const int32_t last_step = min(first_step + run_steps, shape.steps);
  const uint32_t first_tile = blockIdx.x * static_cast<uint32_t>(row_warps);
  RowStepWalk now{first_tile + static_cast<uint32_t>(row_warp),
                  shape.tiles,
                  gridDim.x * static_cast<uint32_t>(row_warps),
                  first_step,
                  first_step,
                  1,
                  last_step};
  RowStepWalk ahead = now;

  LineCopier<T> copier;
  typename Tile::Vectors vectors;
  int64_t copied_term = 0;  // the first of the step that is copied next
  int32_t copied_stage = 0;
  const auto begin_copies = [&] {
    if (!ahead.is_valid()) return;
    const RowTilePlace place(shape, ahead.tile);
    const int32_t behind = elements_behind(shape, place, a);
    copier.begin(shape, place, a + place.matrix * shape.a_stride, behind, first_step, last_step);
    vectors.begin(shape, x + place.matrix * shape.x_stride, behind, first_step);
    copied_term = int64_t{first_step} * Tile::kTerms - behind;
  };
  // The line that ends a step, and that which begins a run; the step's vectors to `stage`.
  const auto copy_next = [&](int32_t stage) {
    const uint32_t here = to_left + static_cast<uint32_t>(copied_stage * kLeft);
    copied_stage = copied_stage + 1 == kLineStages ? 0 : copied_stage + 1;
    if (ahead.is_valid()) {
      if (ahead.step == first_step) copier.copy(here, here, policy);
      copier.copy(here, to_left + static_cast<uint32_t>(copied_stage * kLeft), policy);
      const bool edge = copied_term <= 0 || copied_term + Tile::kTerms + Tile::kPer > shape.terms;
      vectors.copy(shape, copied_term, 1, to_right + static_cast<uint32_t>(stage * kRight), edge);
      copied_term += Tile::kTerms;
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
  int32_t left_stage = 0, stage = 0;
#pragma unroll 1
  for (; now.is_valid(); now.tile += now.stride) {
    const RowTilePlace place(shape, now.tile);
    const int32_t behind = elements_behind(shape, place, a);
    const T *const left = a + place.matrix * shape.a_stride, *const right = x + place.matrix * shape.x_stride;
    reader.begin(shape, right, behind);
    int64_t first = int64_t{first_step} * Tile::kTerms - behind;
#pragma unroll 1
    for (int32_t step = first_step; step < last_step; ++step) {
      wait_for_copies<kStages - 1>();
      __syncwarp();
      tile.add_step(shape, left_memory + left_stage * kLeft, right_memory + stage * kRight, reader, first);
      first += Tile::kTerms;
      __syncwarp();
      copy_next(stage);
      left_stage = left_stage + 1 == kLineStages ? 0 : left_stage + 1;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    tile.finish(shape, place, left, right, behind, first_step, last_step, 1);
    if (runs > 1) break;
    tile.write(shape, output, place, y);
    tile.clear();
  }
  if (runs == 1) return;

  // Nothing is on its way any more: the sums take the rows' place.
  tile.put(reinterpret_cast<float*>(left_memory));
  __syncthreads();
  constexpr int32_t kPitch = kWarp / 4;
#pragma unroll 1
  for (int32_t r = 0; r < row_warps; ++r) {
    if (first_tile + static_cast<uint32_t>(r) >= shape.tiles) return;
    const RowTilePlace place(shape, first_tile + static_cast<uint32_t>(r));
    write_row_sums<Tile::kSlots>(
        shape, output, place, reinterpret_cast<const float*>(row_memory) + r * term_warps * kPitch,
        term_warps, kPitch, static_cast<int32_t>(threadIdx.x), static_cast<int32_t>(blockDim.x), y, table);
  }
}

// ---- host

struct StepsByLines {
  template <class T, int sets, int groups, bool dense>
  static auto kernel() {
    return row_products_by_lines_kernel<T, sets, groups, dense>;
  }
  template <class Tile>
  static constexpr int32_t warp_bytes() {
    return Tile::kLineWarpBytes;
  }
};

}  // namespace

template <class T>
void launch_row_products_by_lines(const Stream& stream, const ThinProblem& problem,
                                  const RowProductPlan& plan, const T* a, const T* x, T* y, float* table,
                                  const ThinBias& bias) {
  RowProductLaunch<T, StepsByLines>{stream, problem, plan, a, x, y, table, bias}.run();
}

template void launch_row_products_by_lines(const Stream&, const ThinProblem&, const RowProductPlan&,
                                           const float*, const float*, float*, float*, const ThinBias&);
template void launch_row_products_by_lines(const Stream&, const ThinProblem&, const RowProductPlan&,
                                           const float16*, const float16*, float16*, float*, const ThinBias&);
template void launch_row_products_by_lines(const Stream&, const ThinProblem&, const RowProductPlan&,
                                           const bfloat16*, const bfloat16*, bfloat16*, float*,
                                           const ThinBias&);

}  // namespace sinter::ops
