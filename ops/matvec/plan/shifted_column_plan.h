// How a GPU cuts products that sum along few rows of 16-bit elements, with several vectors, where these begin
// anywhere in the units of 16 bytes. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

/// A warp copies tiles of neighbouring columns of all rows as they lie, some tiles ahead, and multiplies them
/// kGroup columns at a time on tensor cores. No two warps share anything. In shared memory lie the sums, the
/// stages, and zeros in place of the rows that an instruction has and the matrix does not.
struct ShiftedColumnPlan {
  static constexpr int kThreads = 32;  ///< of a block: a warp
  static constexpr int kGroup = 64;
  static constexpr int64_t kMostTerms = 64;

  int rows = 8;        ///< that a warp's instructions have: 8, 16, 32 or 64
  int width = kGroup;  ///< columns of a tile: a multiple of kGroup and a power of two
  int stage_bytes = 0, sum_bytes = 0;
  int64_t tiles = 1;   ///< of a matrix, with a column in front of the first one
  int64_t blocks = 1;  ///< of a matrix, which take every so-manieth tile

  static constexpr int most_width(int rows) { return rows <= 16 ? 256 : 128; }
  /// Tiles on their way or in use.
  static constexpr int stages(int rows) { return rows == 8 ? 4 : rows == 16 ? 3 : 2; }
  /// Blocks of a processor, as registers allow.
  static constexpr int blocks_at_once(int rows) { return rows <= 32 ? 16 : 8; }
  /// A row in shared memory: lines of 128 bytes, as those that hold it in global memory.
  int line_bytes() const { return 2 * width + 128; }
  /// The sums of a vector, from where they begin in a unit on.
  int sum_line_bytes() const { return 2 * width + 16; }
  int zero_bytes() const { return 2 * width + 16; }
  int shared_bytes() const { return sum_bytes + stages(rows) * stage_bytes + zero_bytes(); }
};

/// `outs` and `terms` (up to kMostTerms) of each of `batch` matrices, at least 1.
inline ShiftedColumnPlan plan_shifted_columns(int64_t batch, int64_t outs, int64_t terms, int vectors) {
  constexpr int kSharedBytes = 228 * 1024, kBlockBytes = 1024;  // of a processor; what it keeps of each block
  constexpr int64_t kBusyWarps = detail::kProcessors * 8;
  ShiftedColumnPlan plan{.rows = terms <= 8 ? 8 : terms <= 16 ? 16 : terms <= 32 ? 32 : 64};
  plan.width = ShiftedColumnPlan::most_width(plan.rows);
  // Of few columns, a warp has the fewer.
  while (plan.width > ShiftedColumnPlan::kGroup && batch * (outs / plan.width) < kBusyWarps) plan.width /= 2;
  plan.stage_bytes = static_cast<int>(terms) * plan.line_bytes();
  // Whole lines, within which neighbours in y change places.
  plan.sum_bytes = (vectors * plan.sum_line_bytes() + 127) / 128 * 128;
  plan.tiles = detail::divide_up(outs + 1, plan.width);
  const int fit = std::min(kSharedBytes / (plan.shared_bytes() + kBlockBytes),
                           ShiftedColumnPlan::blocks_at_once(plan.rows));
  plan.blocks = std::min(plan.tiles, std::max<int64_t>(detail::kProcessors * fit / batch, 1));
  return plan;
}

}  // namespace sinter::ops
