// How a GPU cuts products of not many long rows of 16-bit elements with several vectors. Pure arithmetic,
// without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

/// Tiles of neighbouring terms, of all vectors and a group of rows, are dealt to the warps of all parts in
/// turn. A warp copies its tiles as they lie, some ahead, and keeps its sums over all of them; a block adds
/// those of its warps, and a second kernel those of several parts.
struct LongRowProductPlan {
  static constexpr int kMostRows = 16;          ///< of a group, and vectors: what an instruction has, or two
  static constexpr int kMostGroupedRows = 127;  ///< of a matrix; more are taken by rows that begin alike
  static constexpr int kStages = 3;             ///< tiles on their way or in use
  static constexpr int kStep = 64;  ///< terms that lanes multiply between two branches: a line of 128 bytes
  static constexpr int kMostWarps = 12;  ///< of a block, as registers allow
  static constexpr int kSomeWarps = 6;   ///< that hide each other's latency
  static constexpr int kMostShared = 226 * 1024;

  int width = kStep;    ///< terms of a tile: a multiple of kStep and a power of two
  int stage_bytes = 0;  ///< of a tile in shared memory
  int warps = 1;        ///< of a block
  int64_t tiles = 1;    ///< of a group
  int64_t parts = 1;    ///< of a group of rows: blocks, of which each has every parts-th tile
  int64_t groups = 1;   ///< of a matrix
  int group_rows = 1;   ///< of a group, the last of which may have fewer

  /// A row in shared memory: lines of 128 bytes, as those that hold it in global memory.
  static constexpr int line_bytes(int width) { return 2 * width + 128; }
  /// Vectors that lie side by side are one row of as many times the elements.
  static constexpr int tile_bytes(int width, int rows, int vectors, bool dense_vectors) {
    return rows * line_bytes(width) +
           (dense_vectors ? vectors * line_bytes(width) : 2 * width * vectors + 128);
  }
  int shared_bytes() const { return warps * kStages * stage_bytes; }
};

/// Up to kMostGroupedRows `matrix_rows` and kMostRows `vectors` of `terms` in each of `matrices`. The cost is
/// in bytes that a processor's share of memory brings in that time.
inline LongRowProductPlan plan_long_row_products(int64_t matrices, int64_t matrix_rows, int64_t terms,
                                                 int vectors, bool dense_vectors) {
  using Plan = LongRowProductPlan;
  const int64_t groups = detail::divide_up(matrix_rows, int64_t{Plan::kMostRows}), batch = matrices * groups,
                rows = detail::divide_up(matrix_rows, groups);
  constexpr int64_t kMostWaves = 4;
  constexpr double kStart = 40000, kFold = 45000, kTable = 60;
  constexpr double kTile = 24;  // terms whose sectors neighbouring tiles read too, or whose time a tile costs
  Plan best;
  double least = 0;
  const auto lines = static_cast<double>(2 * (rows + vectors));
  for (int width = 8 * Plan::kStep; width >= Plan::kStep; width /= 2) {
    Plan plan{.width = width,
              .stage_bytes = Plan::tile_bytes(width, static_cast<int>(rows), vectors, dense_vectors),
              .tiles = detail::divide_up(terms, width),
              .groups = groups,
              .group_rows = static_cast<int>(rows)};
    plan.warps = std::min(Plan::kMostWarps, Plan::kMostShared / (Plan::kStages * plan.stage_bytes));
    if (plan.warps < Plan::kSomeWarps) continue;
    for (int64_t waves = 1; waves <= kMostWaves; ++waves) {
      plan.parts = std::clamp<int64_t>(waves * detail::kProcessors / batch, 1, plan.tiles);
      const int64_t taken = detail::divide_up(batch * plan.parts, detail::kProcessors);
      const auto share = static_cast<double>(detail::divide_up(plan.tiles, plan.parts));
      const double table = static_cast<double>(plan.parts * batch * rows * vectors) * kTable /
                           static_cast<double>(detail::kProcessors);
      const double cost = static_cast<double>(taken) * (share * (width + kTile) * lines + kStart) +
                          (plan.parts > 1 ? kFold + table : 0.0);
      if (least == 0 || cost < least) least = cost, best = plan;
    }
  }
  return best;
}

}  // namespace sinter::ops
