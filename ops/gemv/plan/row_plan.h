// How a GPU cuts products of a matrix with one or a few vectors whose sums run along the matrix's rows
// (y = a x). Such products are bound by reading the row-major matrix, once. Pure arithmetic, without CUDA.
// Plans depend on sizes and on the number of the GPU's processors alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {
namespace detail {

inline constexpr int64_t kBlocksOfProcessor = 8;  // of those plans that give a block little to do
inline constexpr int64_t kMostParts = 65535;      // a limit of grids

inline int64_t divide_up(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

}  // namespace detail

/// Sums along rows: `lanes` neighbouring threads of a warp share a row, each takes every lanes-th pack. Short
/// rows are taken at once, `unroll` packs to a lane; along longer ones a whole warp walks, `unroll` packs in
/// flight. Where such rows are few they are cut into parts, each with a warp of its own, whose sums a second
/// kernel adds. Of several vectors the lanes may take `group_rows` neighbouring rows together.
struct RowSumPlan {
  static constexpr int kThreads = 256;     ///< of a block
  static constexpr int kWideAtOnce = 2;    ///< packs of a lane in short rows: of 16 bytes
  static constexpr int kNarrowAtOnce = 5;  ///< the same for narrower packs
  static constexpr int kWalking = 4;
  static constexpr int kVectorsAtOnce = 2;  ///< packs of a lane in flight with several vectors, and
  static constexpr int kGroupRows = 4;      ///< the rows of a group, if it has several

  int pack = 1;    ///< elements of an access; divides the columns
  int lanes = 1;   ///< a power of two, at most 32
  int unroll = 1;  ///< packs of a lane in flight
  int group_rows = 1;
  bool at_once = false;    ///< lanes * unroll packs are enough for a row
  int64_t packs = 0;       ///< of a row
  int64_t part_packs = 0;  ///< of a part, the last of which may have fewer
  int64_t parts = 1;

  int rows_per_block() const { return kThreads / lanes * group_rows; }
};

/// `rows` of all matrices of a batch together, `columns` of one; `wide`: packs have 16 bytes; at least
/// `least_lanes`, a power of two.
inline RowSumPlan plan_row_sums(int64_t processors, int64_t rows, int64_t columns, int pack, bool wide,
                                int group_rows = 1, int least_lanes = 1) {
  constexpr int64_t kLeastPart = 8;  // packs of a lane below which cutting a row does not pay
  RowSumPlan plan{.pack = pack, .group_rows = group_rows, .packs = columns / pack};
  const int64_t packs = std::max<int64_t>(plan.packs, 1);
  plan.unroll = wide ? RowSumPlan::kWideAtOnce : RowSumPlan::kNarrowAtOnce;
  plan.at_once = packs <= int64_t{32} * plan.unroll;
  if (!plan.at_once) plan.unroll = RowSumPlan::kWalking;
  plan.lanes = static_cast<int>(
      std::bit_ceil(std::min<uint64_t>(static_cast<uint64_t>(detail::divide_up(packs, plan.unroll)), 32)));
  plan.lanes = std::max(plan.lanes, least_lanes);
  plan.part_packs = packs;
  if (plan.at_once) return plan;
  const int64_t blocks = std::max<int64_t>(detail::divide_up(rows, plan.rows_per_block()), 1);
  const int64_t most = std::max<int64_t>(packs / (kLeastPart * plan.lanes), 1);
  const int64_t parts = std::clamp<int64_t>(processors * detail::kBlocksOfProcessor / blocks, 1,
                                            std::min(most, detail::kMostParts));
  plan.part_packs = detail::divide_up(packs, parts);
  plan.parts = detail::divide_up(packs, plan.part_packs);
  return plan;
}

/// Sums along rows: `lanes` neighbouring threads are a group, which takes every slots()-th row of its block,
/// at_once() of them together. All rows of a group begin at the same place of a unit, because slots() rows
/// are whole units: so its part of the vector is shifted once. A row that fits is taken at once, by as few
/// lanes as hold it; else a warp takes span after span of units. Where rows are few, parts of the spans have
/// blocks of their own, whose sums a second kernel adds.
struct UnitRowPlan {
  static constexpr int kThreads = 256;  ///< of a block

  int lanes = 32;          ///< 8, 16 or 32
  int units = 1;           ///< of a lane and a row in flight: 1 to 4
  int64_t spans = 1;       ///< of a row
  int64_t part_spans = 1;  ///< of a part, the last of which may have fewer
  int64_t parts = 1;
  int64_t group_rows = 8;  ///< of a block: a multiple of slots()
  int64_t groups = 1;      ///< blocks below each other, of a matrix and a part

  int slots() const { return kThreads / lanes; }
  int span() const { return lanes * units; }  ///< units of a row that a group takes at once
  int at_once() const { return rows_at_once(units); }

  static constexpr int rows_at_once(int units) { return units <= 2 ? 4 : 2; }
};

namespace detail {

/// How many spans a part has, of `turns` blocks with whole rows: where these are few, parts that fill up to
/// four waves of the blocks that a GPU runs at once. A block's start takes about as long as a span, a second
/// kernel as two.
inline int64_t spans_of_part(int64_t processors, const UnitRowPlan& plan, int64_t turns) {
  constexpr int64_t kMostWaves = 4;
  const int64_t wave = processors * (plan.units == 1 ? 3 : 2);
  int64_t best = plan.spans;
  double least = 0;
  for (int64_t waves = 0; waves <= kMostWaves; ++waves) {
    const int64_t wanted = std::clamp<int64_t>(waves * wave / turns, 1, plan.spans);
    const int64_t spans = divide_up(plan.spans, wanted), parts = divide_up(plan.spans, spans);
    const int64_t blocks = turns * parts;
    const double taken = blocks <= kMostWaves * wave
                             ? static_cast<double>(divide_up(blocks, wave))
                             : static_cast<double>(blocks) / static_cast<double>(wave) + 0.5;
    const double cost = taken * static_cast<double>(spans + 1) + (parts > 1 ? 2.0 : 0.0);
    if (waves == 0 || cost < least) least = cost, best = spans;
  }
  return best;
}

/// Into how many blocks below each other a plan's parts are cut, of `batch` matrices with so many rows for
/// each slot: they have as many as fill waves of the blocks that a GPU runs at once. Unit: a group's span.
inline int64_t groups_of_rows(int64_t processors, const UnitRowPlan& plan, int64_t batch, int64_t slot_rows) {
  constexpr int64_t kMostWaves = 8;
  constexpr double kStart = 1.5, kUneven = 0.05;  // of a block's time: not all processors are equally fast
  const int64_t wave = processors * (plan.units == 1 ? 3 : 2), side = batch * plan.parts;
  int64_t best = 1;
  double least = 0;
  for (int64_t waves = 1; waves <= kMostWaves; ++waves) {
    const int64_t wanted = std::clamp<int64_t>(waves * wave / side, 1, slot_rows);
    const int64_t rows = divide_up(slot_rows, wanted), blocks = side * divide_up(slot_rows, rows);
    const double taken = blocks <= kMostWaves * wave
                             ? static_cast<double>(divide_up(blocks, wave))
                             : static_cast<double>(blocks) / static_cast<double>(wave) + 0.5;
    const double turns = static_cast<double>(rows * plan.part_spans) / plan.at_once();
    const double cost = taken * (turns + kStart) + kUneven * turns;
    if (waves == 1 || cost < least) least = cost, best = divide_up(slot_rows, rows);
  }
  return best;
}

}  // namespace detail

/// `rows` and `columns` of one of `batch` matrices, at least 1, `pack` elements to a unit.
inline UnitRowPlan plan_unit_rows(int64_t processors, int64_t batch, int64_t rows, int64_t columns,
                                  int pack) {
  UnitRowPlan plan;
  const int64_t units = std::max<int64_t>(columns / pack, 1);
  if (units <= 64) {
    plan.lanes = units <= 32 ? 8 : 16;
    plan.units = static_cast<int>(std::max<int64_t>(detail::divide_up(units, plan.lanes), 2));
  } else {
    // Two units to a lane, unless the last span's lanes would be idle.
    const int64_t single = detail::divide_up(units, 32), twice = 2 * detail::divide_up(units, 64);
    plan.units = 4 * twice <= 5 * single ? 2 : 1;
  }
  plan.spans = detail::divide_up(units, plan.span());
  const int64_t slots = plan.slots(), turns = detail::divide_up(rows, slots * plan.at_once());
  plan.part_spans = detail::spans_of_part(processors, plan, batch * turns);
  plan.parts = detail::divide_up(plan.spans, plan.part_spans);
  const int64_t slot_rows = detail::divide_up(rows, slots),
                groups = detail::groups_of_rows(processors, plan, batch, slot_rows);
  plan.group_rows = detail::divide_up(slot_rows, groups) * slots;
  plan.groups = detail::divide_up(rows, plan.group_rows);
  return plan;
}

/// Sums along few long rows, which begin at any place of a unit: a block takes a group of a matrix's rows, or
/// a part of their columns whose sums a second kernel adds. All its rows are multiplied with the same units
/// of the vector, shifted to each row's own units: so the vector is read once for the group. As soon as a
/// thread has multiplied a unit, it loads the one that it takes a turn later.
struct LongRowPlan {
  static constexpr int kThreads = 256;      ///< of a block
  static constexpr int kBlocks = 3;         ///< of a processor
  static constexpr int kMostGroupRows = 4;  ///< what registers hold

  int group_rows = 1;  ///< of the first groups of a matrix; the others have one less
  int64_t groups = 1;  ///< of a matrix
  int64_t parts = 1;   ///< that take kThreads units of each row in turn, so that blocks read the same pages

  /// Groups of a matrix with group_rows rows.
  int64_t full_groups(int64_t rows) const { return rows - groups * (group_rows - 1); }
  /// The first row of a group, where so many are full.
  static SINTER_HOST_DEVICE int64_t first_row(int64_t group, int group_rows, int64_t full_groups) {
    return group * group_rows - (group > full_groups ? group - full_groups : 0);
  }
  /// Units of each row that a thread has in flight.
  static constexpr int units_at_once(int group_rows) { return group_rows == 1 ? 4 : group_rows == 2 ? 3 : 2; }
};

/// `rows` of each of `batch` matrices and `columns`, `pack` elements to a unit: groups of as many rows as
/// pay, and parts that fill one wave of the blocks that a GPU runs at once, or more where that leaves fewer
/// processors idle.
inline LongRowPlan plan_long_rows(int64_t processors, int64_t batch, int64_t rows, int64_t columns,
                                  int pack) {
  constexpr int64_t kMostWaves = 4, kLeastLoads = 4;
  const int64_t wave = processors * LongRowPlan::kBlocks;
  // In units of a thread: one of the vector, which L2 has, a block's start, and a second kernel.
  constexpr double kFactors = 0.5, kStart = 3, kFold = 4;
  const int64_t units = std::max<int64_t>(columns / pack, 1);
  LongRowPlan plan;
  double least = 0;
  for (int64_t wanted_rows = 1; wanted_rows <= LongRowPlan::kMostGroupRows; ++wanted_rows) {
    const int64_t groups = detail::divide_up(rows, wanted_rows), group_rows = detail::divide_up(rows, groups);
    const int64_t least_units = LongRowPlan::kThreads * detail::divide_up(kLeastLoads, group_rows);
    const int64_t most = std::max<int64_t>(units / least_units, 1);
    for (int64_t waves = 0; waves <= kMostWaves; ++waves) {
      const int64_t wanted = std::clamp<int64_t>(waves * wave / (batch * groups), 1, most);
      const int64_t part_units = detail::divide_up(units, wanted),
                    parts = detail::divide_up(units, part_units);
      const auto taken = static_cast<double>(detail::divide_up(batch * groups * parts, wave)),
                 turns = static_cast<double>(part_units) / LongRowPlan::kThreads;
      const double cost =
          taken * (turns * (static_cast<double>(group_rows) + kFactors) + kStart) + (parts > 1 ? kFold : 0);
      if (least > 0 && cost >= least) continue;
      least = cost;
      plan = {.group_rows = static_cast<int>(group_rows), .groups = groups, .parts = parts};
    }
  }
  return plan;
}

/// Whether sums along `rows` of all matrices are those of few long rows.
inline bool is_long_rows(int64_t rows, int64_t columns, int pack) {
  constexpr int64_t kMostRows = 64, kLeastUnits = 1 << 11, kLeast = 1 << 14;  // the last two: units
  const int64_t units = columns / pack;
  return rows >= 1 && rows <= kMostRows && units >= kLeastUnits && rows * units >= kLeast;
}

}  // namespace sinter::ops
