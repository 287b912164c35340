// How a GPU cuts products of one vector with the columns of few rows. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

/// Sums along columns of few rows that begin with units, or anywhere in the 16-bit types: a thread has
/// `packs` packs of neighbouring columns, `threads` packs apart, and walks down all rows, `at_once` in
/// flight. Nothing is added across threads.
struct FewRowPlan {
  static constexpr int kThreads = 256;  ///< of a block
  static constexpr int kLoads = 8;      ///< packs of a thread in flight

  int packs = 1;      ///< 1, 2 or 4
  int64_t tiles = 1;  ///< blocks of a matrix

  int at_once() const { return kLoads / packs; }
};

namespace detail {

/// Packs side by side that a thread has of columns of so many rows: four or fewer, so that rows and packs are
/// up to `loads` where there are work items for `least` of such; `item`: packs of one that has a pack.
inline int packs_of_columns(int64_t batch, int64_t rows, int64_t packs, int64_t loads, int64_t item,
                            int64_t least) {
  int side = 1;
  while (side < 4 && 2 * side * rows <= loads && batch * divide_up(packs, 2 * side * item) >= least) {
    side *= 2;
  }
  return side;
}

}  // namespace detail

/// `rows` and `columns` of one of `batch` matrices, at least 1, `pack` elements to 16 bytes.
inline FewRowPlan plan_few_rows(int64_t batch, int64_t rows, int64_t columns, int pack) {
  constexpr int64_t kWave = detail::kProcessors * 3;
  FewRowPlan plan;
  plan.packs = detail::packs_of_columns(batch, rows, detail::divide_up(columns, pack), FewRowPlan::kLoads,
                                        FewRowPlan::kThreads, kWave);
  plan.tiles = detail::divide_up(columns, int64_t{FewRowPlan::kThreads} * plan.packs * pack);
  return plan;
}

/// The same of rows that begin anywhere: a warp has `packs` times 32 units of y side by side and copies the
/// units of `rows` rows that hold them, two steps ahead, to a ring of its own. What lies in front of y's
/// units and behind its last one but one is added by single lanes.
struct ShiftedRowPlan {
  static constexpr int kMostThreads = 256;  ///< of a block
  static constexpr int kBlocks = 2;         ///< of a processor
  static constexpr int kLoads = 8;          ///< units of a lane in a stage
  static constexpr int kStages = 3;         ///< in flight or in use

  int packs = 1;       ///< 1, 2 or 4
  int rows = 1;        ///< of a step, up to at_once()
  int64_t tiles = 1;   ///< of a matrix, for a warp each
  int warps = 1;       ///< of a block
  int64_t blocks = 1;  ///< whose warps take every so-manieth tile of all matrices

  static constexpr int at_once(int packs) { return kLoads / packs; }
  static constexpr int line_units(int packs) { return 32 * packs + 1; }  ///< of a row in shared memory
  static constexpr int stage_bytes(int packs) { return 16 * at_once(packs) * line_units(packs); }
  int shared_bytes() const { return warps * kStages * stage_bytes(packs); }
};

/// `rows` and `columns` of one of `batch` matrices, at least 1, `pack` elements to 16 bytes.
inline ShiftedRowPlan plan_shifted_rows(int64_t batch, int64_t rows, int64_t columns, int pack) {
  constexpr int64_t kWarps = ShiftedRowPlan::kMostThreads / 32,
                    kAll = detail::kProcessors * ShiftedRowPlan::kBlocks;
  ShiftedRowPlan plan;
  const int64_t packs = detail::divide_up(columns, pack);
  plan.packs = detail::packs_of_columns(batch, rows, packs, ShiftedRowPlan::kLoads, 32, kAll * kWarps);
  const int64_t steps = detail::divide_up(rows, ShiftedRowPlan::at_once(plan.packs));
  plan.rows = static_cast<int>(detail::divide_up(rows, steps));
  plan.tiles = detail::divide_up(packs, int64_t{32} * plan.packs);
  const int64_t items = batch * plan.tiles;
  plan.warps = static_cast<int>(std::clamp<int64_t>(detail::divide_up(items, kAll), 1, kWarps));
  plan.blocks = std::min(detail::divide_up(items, plan.warps), kAll);
  return plan;
}

/// Whether sums along the columns of `batch` matrices are worth threads that walk down whole columns: rows
/// are few, and threads enough to keep memory busy, or so few that others have no more. Rows of whole units
/// have another good kernel, where threads would be a few waves that take long.
inline bool is_few_rows(int64_t batch, int64_t rows, int64_t columns, int pack) {
  constexpr int64_t kWave = detail::kProcessors * 3, kManyWaves = 4, kShortRows = 32;
  constexpr int64_t kVeryFewRows = 16, kLeastPacks = 256;
  const bool whole = columns % pack == 0;
  const int64_t most_rows = 128, least_loads = whole ? 1 << 18 : 1 << 17, least_of_few = 1 << 14;
  if (rows < 1 || rows > most_rows || columns < 1) return false;
  const int64_t loads = std::min<int64_t>(rows, FewRowPlan::kLoads), packs = detail::divide_up(columns, pack);
  if (rows <= kVeryFewRows &&
      packs >= std::max(kLeastPacks, detail::divide_up(least_of_few, loads * batch))) {
    return true;
  }
  if (packs < detail::divide_up(least_loads, loads * batch)) return false;
  if (!whole || rows <= kShortRows) return true;
  const int64_t blocks = detail::divide_up(packs, FewRowPlan::kThreads);
  return blocks * batch <= kWave || blocks >= detail::divide_up(kManyWaves * kWave, batch);
}

}  // namespace sinter::ops
