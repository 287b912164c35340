// How a GPU cuts products of long rows with several vectors. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

/// Sums along long rows, with several vectors, on tensor cores. Rows that begin alike in 16 bytes, or in the
/// 32 that the L2 cache brings at least, are a class, every classes-th; a warp has a tile of neighbouring
/// ones, whose terms, or a part of them, it shares with other warps of its block, or takes alone, tile after
/// tile. Large matrices whose rows do not begin with lines of memory are read by lines, where warps that
/// share a tile have runs of its steps; else these take its steps in turn. A second kernel adds the parts.
struct RowProductPlan {
  static constexpr int kBlocks = 1;       ///< of a processor: its shared memory holds what is on its way
  static constexpr int kStepBytes = 128;  ///< of a row at a time
  /// Of matrices that are read by lines, by warps alone or that share tiles.
  static constexpr int64_t kLeastLineBytes = 16 << 20, kLeastSharedLineBytes = 160 << 20;
  static constexpr int warps(int sets) { return sets == 4 ? 8 : 12; }  ///< of a block
  static constexpr int stages(int sets) { return sets == 1 ? 3 : 2; }  ///< steps of a warp on their way
  /// Warps by lines, whose steps need more of the shared memory.
  static constexpr int line_warps(int sets, int vectors) {
    return sets == 4 && vectors > 8 ? 7 : warps(sets);
  }

  bool by_lines = false;  ///< of kStepBytes
  int unit_bytes = 16;    ///< 16 or 32, where a row's first step begins
  int64_t classes = 1;    ///< a power of two
  int sets = 4;           ///< 1, 2 or 4: times 16 rows
  int64_t tile_rows = 1;  ///< of a class, as many or fewer, so that tiles are alike
  int row_warps = 1;      ///< warps of a block with different rows, a divisor of them
  int64_t tiles = 1;      ///< of all classes of a matrix
  int64_t steps = 1;      ///< that hold a row and what its first unit has in front of it
  int64_t blocks = 1;     ///< of a part
  int64_t parts = 1;      ///< of the steps, as warps that share a tile have them
  int block_warps = 8;    ///< of a block, a multiple of row_warps

  int64_t term_warps() const { return block_warps / row_warps; }
};

/// Of rows of elements of some bytes, without gaps in between: how many begin at different places of a unit.
inline int64_t row_classes(int64_t terms, int element_bytes, int unit_bytes = 16) {
  const int64_t unit = unit_bytes / element_bytes;
  return unit / std::gcd(terms, unit);
}

namespace detail {

/// Chooses among plans with the same classes and sets; the cost is in bytes that a processor's share of
/// memory brings in that time.
struct RowProductChoice {
  static constexpr int64_t kWave = kProcessors * RowProductPlan::kBlocks;

  int64_t batch, outs;
  int vectors;
  RowProductPlan best = {};
  double least = 0;

  void consider(const RowProductPlan& plan, double cost) {
    if (least == 0 || cost < least) least = cost, best = plan;
  }
  int warps_of(const RowProductPlan& plan) const {
    return plan.by_lines ? RowProductPlan::line_warps(plan.sets, vectors) : RowProductPlan::warps(plan.sets);
  }
  /// The plan's tiles of as many rows as 16 `sets`, or fewer where that makes them alike.
  void cut(RowProductPlan& plan, int64_t most_rows) const {
    constexpr int64_t kRowsAtOnce = 4;  // that lanes copy together
    const int64_t rows = divide_up(outs, plan.classes), count = divide_up(rows, most_rows);
    plan.tile_rows = std::min(divide_up(divide_up(rows, count), kRowsAtOnce) * kRowsAtOnce, most_rows);
    plan.tiles = plan.classes * divide_up(rows, plan.tile_rows);
  }
  /// Of a step of a tile. The vectors come from L2, which brings a sector more to rows that begin in the
  /// middle of one.
  double step_bytes(const RowProductPlan& plan, bool in_sectors) const {
    constexpr double kVector = 0.75, kSector = 1.2, kIdle = 0.4;
    const auto rows = static_cast<double>(plan.tile_rows), idle = 16 * plan.sets - rows;
    return RowProductPlan::kStepBytes *
           (rows * (in_sectors ? 1 : kSector) + kIdle * idle + kVector * vectors);
  }

  void consider_alone(RowProductPlan plan, bool in_sectors) {
    constexpr double kStart = 30000, kTile = 6000;
    plan.row_warps = plan.block_warps = warps_of(plan);
    const int64_t warps = plan.row_warps;
    const int64_t all_rows = batch * outs, turns = divide_up(all_rows, kWave * warps * 16 * plan.sets);
    cut(plan, std::min<int64_t>(16 * plan.sets, divide_up(all_rows, turns * kWave * warps * 4) * 4));
    const int64_t tiles = batch * plan.tiles;
    plan.blocks = std::min(divide_up(tiles, warps), kWave);
    const auto most = static_cast<double>(divide_up(tiles, plan.blocks * warps));
    consider(plan, kStart + most * static_cast<double>(warps) *
                                (static_cast<double>(plan.steps) * step_bytes(plan, in_sectors) + kTile));
  }
  void consider_shared(RowProductPlan plan, bool in_sectors) {
    constexpr int64_t kMostWaves = 3, kMostShares = 1024;
    constexpr double kStart = 40000, kFold = 45000, kTable = 60;
    cut(plan, 16 * plan.sets);
    const int64_t tiles = batch * plan.tiles;
    const int64_t warps = warps_of(plan);
    for (plan.row_warps = 1; warps / plan.row_warps > 2; plan.row_warps *= 2) {
      plan.block_warps = static_cast<int>(warps / plan.row_warps * plan.row_warps);
      plan.blocks = divide_up(tiles, plan.row_warps);
      const int64_t rounds = divide_up(plan.steps, plan.term_warps());
      for (int64_t waves = 0; waves <= kMostWaves; ++waves) {
        plan.parts = std::clamp<int64_t>(waves * kWave / plan.blocks, 1, std::min(rounds, kMostShares));
        const double full = static_cast<double>(plan.blocks * plan.parts) / static_cast<double>(kWave);
        const double taken = full <= 3 ? std::ceil(full) : full + 0.5;
        const double share =
            static_cast<double>(divide_up(rounds, plan.parts) * warps) * step_bytes(plan, in_sectors);
        const double table =
            static_cast<double>(plan.parts * batch * outs * vectors) * kTable / static_cast<double>(kWave);
        consider(plan, taken * (share + kStart) + (plan.parts > 1 ? kFold + table : 0.0));
      }
    }
  }
};

}  // namespace detail

/// `outs` and `terms` of each of `batch` matrices, at least 1.
inline RowProductPlan plan_row_products(int element_bytes, int64_t batch, int64_t outs, int64_t terms,
                                        int vectors) {
  detail::RowProductChoice choice{.batch = batch, .outs = outs, .vectors = vectors};
  const int64_t bytes = batch * outs * terms * element_bytes;
  const bool may_be_by_lines = row_classes(terms, element_bytes, RowProductPlan::kStepBytes) > 1;
  const bool all_in_sectors = row_classes(terms, element_bytes, 32) == 1;
  for (const int unit_bytes : {16, 32}) {
    if (unit_bytes == 32 && all_in_sectors) continue;
    const bool is_in_sectors = unit_bytes == 32 || all_in_sectors;
    RowProductPlan plan{.unit_bytes = unit_bytes, .classes = row_classes(terms, element_bytes, unit_bytes)};
    plan.steps =
        detail::divide_up(terms + unit_bytes / element_bytes - 1, RowProductPlan::kStepBytes / element_bytes);
    for (const int sets : {4, 2, 1}) {
      if (sets > 1 && detail::divide_up(outs, plan.classes) <= int64_t{8} * sets) continue;
      plan.sets = sets;
      plan.by_lines = may_be_by_lines && bytes >= RowProductPlan::kLeastLineBytes;
      if (!plan.by_lines || unit_bytes == 16) choice.consider_alone(plan, is_in_sectors || plan.by_lines);
      plan.by_lines = may_be_by_lines && bytes >= RowProductPlan::kLeastSharedLineBytes;
      if (!plan.by_lines || unit_bytes == 16) choice.consider_shared(plan, is_in_sectors || plan.by_lines);
    }
  }
  return choice.best;
}

}  // namespace sinter::ops
