// How a GPU cuts products of a matrix with one vector whose rows are read in the aligned units of 16 bytes
// that lie in them, whatever their length. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

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
inline int64_t spans_of_part(const UnitRowPlan& plan, int64_t turns) {
  constexpr int64_t kMostWaves = 4;
  const int64_t wave = kProcessors * (plan.units == 1 ? 3 : 2);
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
inline int64_t groups_of_rows(const UnitRowPlan& plan, int64_t batch, int64_t slot_rows) {
  constexpr int64_t kMostWaves = 8;
  constexpr double kStart = 1.5, kUneven = 0.05;  // of a block's time: not all processors are equally fast
  const int64_t wave = kProcessors * (plan.units == 1 ? 3 : 2), side = batch * plan.parts;
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

/// `rows` and `columns` of one of `batch` matrices, at least 1, `pack` elements to a unit. Depends on the
/// sizes alone.
inline UnitRowPlan plan_unit_rows(int64_t batch, int64_t rows, int64_t columns, int pack) {
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
  plan.part_spans = detail::spans_of_part(plan, batch * turns);
  plan.parts = detail::divide_up(plan.spans, plan.part_spans);
  const int64_t slot_rows = detail::divide_up(rows, slots),
                groups = detail::groups_of_rows(plan, batch, slot_rows);
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
/// processors idle. Depends on the sizes alone.
inline LongRowPlan plan_long_rows(int64_t batch, int64_t rows, int64_t columns, int pack) {
  constexpr int64_t kWave = detail::kProcessors * LongRowPlan::kBlocks, kMostWaves = 4, kLeastLoads = 4;
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
      const int64_t wanted = std::clamp<int64_t>(waves * kWave / (batch * groups), 1, most);
      const int64_t part_units = detail::divide_up(units, wanted),
                    parts = detail::divide_up(units, part_units);
      const auto taken = static_cast<double>(detail::divide_up(batch * groups * parts, kWave)),
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

/// Sums along short rows of 16-bit elements that fill no packs of 16 bytes: a warp copies groups of
/// group_rows() rows to shared memory as they lie, the next while it adds up one, and a lane takes two rows
/// of every 64. Warps share nothing but the vector.
struct PackedRowPlan {
  static constexpr int kThreads = 128;             ///< of a block
  static constexpr int kBlocks = 12;               ///< of a processor, if shared memory allows as many
  static constexpr int kStages = 2;                ///< groups of a warp, in flight and in use
  static constexpr int kPairRows = 64;             ///< that a warp adds up together
  static constexpr int kMostColumns = 63;          ///< rows of 64 and more are read in units
  static constexpr int64_t kLeastBytes = 8 << 20;  ///< of a matrix for which the copies pay

  int pairs = 1;       ///< times kPairRows of a group
  int64_t groups = 1;  ///< the last of which may have fewer rows
  int64_t blocks = 1;  ///< whose warps take every so-manieth group

  int group_rows() const { return pairs * kPairRows; }
  static int group_bytes(int pairs, int64_t columns) {
    return pairs * kPairRows * 2 * static_cast<int>(columns);
  }
  static constexpr int kFactorSlots = kMostColumns + 1;  ///< of a vector in float32, and one element more
  /// Of a block: the vector, or `batched`, where each matrix has its own, two of each warp.
  static constexpr int factor_bytes(bool batched) {
    return kFactorSlots * 4 * (batched ? 2 * kThreads / 32 : 1);
  }
  /// Those and the groups of the block's warps.
  static int shared_bytes(int pairs, int64_t columns, bool batched) {
    return factor_bytes(batched) + kThreads / 32 * kStages * group_bytes(pairs, columns);
  }
};

/// `rows` of all matrices, at least 1, of 2 to kMostColumns `columns`.
/// `batched`: each matrix has a vector of its own.
inline PackedRowPlan plan_packed_rows(int64_t rows, int64_t columns, bool batched) {
  constexpr int64_t kWarps = PackedRowPlan::kThreads / 32, kGroupColumns = 16;  // 2 KB to a group
  constexpr int kSharedBytes = 228 * 1024, kBlockBytes = 1024;  // of a processor; what it keeps of each block
  PackedRowPlan plan{.pairs = static_cast<int>(std::max<int64_t>(kGroupColumns / columns, 1))};
  plan.groups = detail::divide_up(rows, plan.group_rows());
  const int fit = kSharedBytes / (PackedRowPlan::shared_bytes(plan.pairs, columns, batched) + kBlockBytes);
  plan.blocks = std::min(detail::divide_up(plan.groups, kWarps),
                         detail::kProcessors * std::clamp(fit, 1, PackedRowPlan::kBlocks));
  return plan;
}

/// The same with several vectors, on tensor cores, and of any short rows of 16-bit elements: a warp copies
/// groups of `times` 64 rows as they lie, the next while it multiplies one. No two warps share anything.
struct PackedProductPlan {
  static constexpr int kThreads = 128;   ///< of a block
  static constexpr int kStages = 2;      ///< groups of a warp, in flight and in use
  static constexpr int kRows = 64;       ///< that a warp multiplies together
  static constexpr int kMostTerms = 63;  ///< of which registers hold all vectors' elements

  int steps = 1;     ///< times 16 terms that hold a row, and the element in front of it: 1, 2 or 4
  int times = 1;     ///< kRows of a group
  int log_step = 0;  ///< of an even number of terms: 2 to the power of this neighbours' words fill all banks
  int stage_bytes = 0;  ///< of a group
  int sum_bytes = 0;
  int64_t groups = 1;  ///< of a matrix, the last of which may have fewer rows
  int64_t blocks = 1;  ///< of a matrix, whose warps take every so-manieth group

  int warp_bytes() const { return kStages * stage_bytes + sum_bytes; }
  int shared_bytes() const { return kThreads / 32 * warp_bytes(); }
  /// Of a processor, as registers allow.
  static constexpr int blocks_at_once(int steps) { return steps == 4 ? 4 : 7; }
};

/// `rows` of each of `batch` matrices, at least 1, of up to PackedProductPlan::kMostTerms `terms`.
inline PackedProductPlan plan_packed_products(int64_t batch, int64_t rows, int64_t terms, int vectors) {
  constexpr int64_t kWarps = PackedProductPlan::kThreads / 32, kGroupTerms = 16;  // 2 KB to a group
  constexpr int kSharedBytes = 228 * 1024, kBlockBytes = 1024;  // of a processor; what it keeps of each block
  PackedProductPlan plan;
  plan.steps = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(terms + terms % 2 + 15) / 16));
  plan.times = static_cast<int>(std::max<int64_t>(kGroupTerms / terms, 1));
  const int64_t words = terms / 2;
  plan.log_step = words % 2 == 1 ? 2 : words % 4 == 2 ? 1 : 0;
  plan.stage_bytes = plan.times * PackedProductPlan::kRows * 2 * static_cast<int>(terms);
  // A line of sums for each vector, each 64 and 8; what is read behind the last group's rows lies there.
  plan.sum_bytes = (PackedProductPlan::kRows + 8) * 2 * vectors;
  plan.groups = detail::divide_up(rows, plan.times * PackedProductPlan::kRows);
  const int fit = std::min(kSharedBytes / (plan.shared_bytes() + kBlockBytes),
                           PackedProductPlan::blocks_at_once(plan.steps));
  const int64_t at_once = std::max<int64_t>(detail::kProcessors * fit / batch, 1);
  plan.blocks = std::min(detail::divide_up(plan.groups, kWarps), at_once);
  return plan;
}

/// Sums along rows of up to most_terms(), with several vectors, on tensor cores: a warp copies groups of
/// `times` rows_at_once() rows as they lie, the next while it multiplies one. The vectors lie in shared
/// memory once for a block, as the instructions read them.
struct RowGroupPlan {
  static constexpr int kMostThreads = 512;  ///< of a block, and of all blocks of a processor
  static constexpr int kStages = 2;         ///< groups of a warp, in flight and in use
  static constexpr int kStepWords = 16;     ///< of a row that are multiplied at once
  static constexpr int kMostHalfBytes = 512, kMostFloatBytes = 640;  ///< of a row
  static constexpr int kFloatLine = 36;  ///< sums of a vector in float32: 32, and 4 for their banks

  int steps = 1;     ///< times kStepWords that hold a row, and the element in front of it
  int times = 1;     ///< rows_at_once() of a group
  int log_step = 0;  ///< 2 to the power of this neighbours' words fill all banks
  int padding = 0;   ///< bytes behind each row in shared memory: where rows would all begin in the same banks
  int vector_bytes = 0, stage_bytes = 0, sum_bytes = 0;
  int team = 1;        ///< warps that share a group: 1, or 2 where shared memory holds few groups
  int teams = 1;       ///< of a block
  int processor = 1;   ///< blocks of a processor
  int64_t groups = 1;  ///< of a matrix, the last of which may have fewer rows
  int64_t blocks = 1;  ///< of a matrix, whose teams take every so-manieth group

  static constexpr int rows_at_once(int element_bytes) { return 128 / element_bytes; }
  static constexpr int64_t most_terms(int element_bytes) {
    return element_bytes == 4 ? kMostFloatBytes / 4 : kMostHalfBytes / 2;
  }
  int team_bytes() const { return kStages * stage_bytes + sum_bytes; }
  int shared_bytes() const { return vector_bytes + teams * team_bytes(); }
};

/// `rows` of each of `batch` matrices, at least 1, of up to most_terms(); `block_bytes` of shared memory a
/// block may have.
inline RowGroupPlan plan_row_groups(int element_bytes, int64_t batch, int64_t rows, int64_t terms,
                                    int vectors, int block_bytes) {
  constexpr int kSharedBytes = 228 * 1024, kBlockBytes = 1024;  // of a processor; what it keeps of each block
  constexpr int kGroupBytes = 4096, kMostBlocks = 4, kMostWarps = RowGroupPlan::kMostThreads / 32;
  constexpr int kFewTeams = 6;  // of a processor, which would not keep it busy with a warp each
  RowGroupPlan plan;
  const int row_bytes = static_cast<int>(terms) * element_bytes;
  const int at_once = RowGroupPlan::rows_at_once(element_bytes), lanes = vectors <= 8 ? 8 : 16;
  const bool odd = row_bytes % 4 != 0;  // every second row begins in the middle of a word
  const int words = (row_bytes + (odd ? 5 : 3)) / 4;
  plan.steps = (words + RowGroupPlan::kStepWords - 1) / RowGroupPlan::kStepWords;
  plan.times = std::max(kGroupBytes / (at_once * row_bytes), 1);
  plan.padding = row_bytes % 32 == 0 ? 16 : 0;
  const int pitch_words = (row_bytes + plan.padding) / 4;
  plan.log_step = pitch_words % 2 == 1 ? 2 : pitch_words % 4 == 2 ? 1 : 0;
  // Of float32 both halves; of an odd number of terms once more, for rows that begin in the middle of a word.
  plan.vector_bytes = plan.steps * RowGroupPlan::kStepWords * 4 * lanes * (element_bytes == 4 || odd ? 2 : 1);
  plan.stage_bytes = plan.times * at_once * (row_bytes + plan.padding);
  // What is read behind the last row of a group lies there too.
  plan.sum_bytes = element_bytes == 4 ? RowGroupPlan::kFloatLine * 4 * vectors : (at_once + 8) * 2 * vectors;
  plan.groups = detail::divide_up(rows, plan.times * at_once);
  double most = 0;
  for (int processor = 1; processor <= kMostBlocks; processor *= 2) {
    const int bytes = std::min(block_bytes, kSharedBytes / processor - kBlockBytes) - plan.vector_bytes;
    const int teams = std::min(bytes / plan.team_bytes(), kMostWarps / processor);
    if (teams < 1) continue;
    const int64_t at_once_blocks = std::max<int64_t>(detail::kProcessors * processor / batch, 1);
    const int64_t blocks = std::min(detail::divide_up(plan.groups, teams), at_once_blocks);
    const int64_t waves = detail::divide_up(batch * blocks, detail::kProcessors * processor);
    const double busy = static_cast<double>(batch * blocks * teams) / static_cast<double>(waves);
    if (busy <= most) continue;
    most = busy;
    plan.teams = teams;
    plan.processor = processor;
    plan.blocks = blocks;
  }
  if (element_bytes == 4 && plan.teams * plan.processor <= kFewTeams) plan.team = 2;
  return plan;
}

/// Sums along many rows of 16-bit elements, with several vectors, on tensor cores: a block has a tile of
/// columns, whose terms, or a part of them, its warps share. Every kClasses-th row begins at the same place
/// of a unit of 16 bytes: a warp has those of a class. A second kernel adds the parts.
struct ManyTermPlan {
  static constexpr int kClasses = 8, kThreads = 32 * kClasses;  ///< of a block
  static constexpr int kStep = 16;                 ///< rows of a warp that are multiplied together
  static constexpr int kRound = kClasses * kStep;  ///< rows of a block
  static constexpr int kBlocks = 2;                ///< of a processor
  static constexpr int kNarrowUnits = 8, kWideUnits = 16;

  int units = kNarrowUnits;  ///< that hold a tile's columns of a row: a sector of memory less is read twice
                             ///< the wider they are
  int width = 64;            ///< columns of a tile, a multiple of 8, so that tiles are alike
  int64_t tiles = 1;         ///< of a matrix: blocks side by side
  int64_t parts = 1;         ///< that take rounds in turn

  /// The widest tile of rows of `outs` columns: without what lies in front of it in its first unit.
  static constexpr int most_width(int64_t outs, int units, bool begins_with_units) {
    return 8 * units - (!begins_with_units || outs % 8 != 0 ? 8 : 0);
  }
  void cut(int64_t outs, int of_units, bool begins_with_units) {
    const int64_t most = most_width(outs, of_units, begins_with_units);
    units = of_units;
    tiles = detail::divide_up(outs, most);
    width = static_cast<int>(detail::divide_up(detail::divide_up(outs, tiles), 8) * 8);
  }

  static constexpr int stages(int units) { return units == kWideUnits ? 3 : 5; }  ///< in flight or in use
  static constexpr int ring_bytes(int units) { return stages(units) * kStep * 16 * units; }  ///< of a warp
  /// The vectors' terms of a round: of each class a unit for each lane. Those of two rounds are there.
  static constexpr int kOperandBytes = 32 * 16 + 16, kSlotBytes = kClasses * kOperandBytes;
  static constexpr int shared_bytes(int units) { return 2 * kSlotBytes + kClasses * ring_bytes(units); }
  /// The row of a step that an instruction takes as its k-th: those of a lane's terms are 4 rows apart.
  static constexpr int row_of(int k) { return k / 8 * 8 + k % 8 / 2 + k % 2 * 4; }
};

/// `outs` and `terms` of each of `batch` matrices, at least 1, that begin with whole units.
inline ManyTermPlan plan_many_terms(int64_t batch, int64_t outs, int64_t terms, int vectors) {
  constexpr int64_t kWave = detail::kProcessors * ManyTermPlan::kBlocks, kMostWaves = 3, kMostParts = 1024;
  // In the time that a wave of blocks needs for a round of 64 columns. Half a wave does not keep memory busy.
  constexpr double kStart = 1.5, kFold = 3.0, kRoundSums = 700000, kLeastWave = 0.6;
  constexpr int kNarrow = ManyTermPlan::kNarrowUnits, kWide = ManyTermPlan::kWideUnits;
  ManyTermPlan plan;
  plan.cut(outs, outs <= ManyTermPlan::most_width(outs, kNarrow, true) ? kNarrow : kWide, true);
  const int64_t rounds = detail::divide_up(terms, ManyTermPlan::kRound), tiles = batch * plan.tiles;
  const double round = plan.width / 64.0;
  double least = 0;
  for (int64_t waves = 0; waves <= kMostWaves; ++waves) {
    const int64_t wanted = std::clamp<int64_t>(waves * kWave / tiles, 1, std::min(rounds, kMostParts));
    const int64_t part_rounds = detail::divide_up(rounds, wanted);
    const int64_t parts = detail::divide_up(rounds, part_rounds), blocks = tiles * parts;
    // Blocks of many waves do not wait for each other: only the last wave is as long as a whole one.
    const double full = static_cast<double>(blocks) / kWave;
    const double taken = full <= 1 ? std::max(full, kLeastWave) : full + 0.5;
    const double table = static_cast<double>(2 * parts * batch * outs * vectors) / kRoundSums;
    const double cost =
        taken * round * static_cast<double>(part_rounds) + kStart + (parts > 1 ? kFold + table : 0.0);
    if (least > 0 && cost >= least) continue;
    least = cost;

    plan.parts = parts;
  }
  return plan;
}

/// Sums along columns of some terms in float32, with several vectors, on tensor cores: a warp has kOuts
/// columns and walks down them, kStep terms at a time, tile after tile. No two warps share anything.
struct FloatColumnPlan {
  static constexpr int kThreads = 128;  ///< of a block
  static constexpr int kOuts = 64, kStep = 16;
  static constexpr int kStages = 2;  ///< steps of a warp, in flight and in use
  static constexpr int kBlocks = 3;  ///< of a processor, as registers allow
  /// Words of a line of columns in shared memory, which begins anywhere in a unit: neighbours lie 8 banks
  /// apart. And of a line of sums.
  static constexpr int kLine = kOuts + 8, kSumLine = kOuts + 4;
  static constexpr int kWarpWords = kStages * kStep * kLine + 16 * kSumLine;

  int64_t tiles = 1;   ///< of a matrix, for a warp each
  int steps = 1;       ///< of a tile
  int64_t blocks = 1;  ///< whose warps take every so-manieth tile of all matrices

  static constexpr int shared_bytes() { return kThreads / 32 * kWarpWords * 4; }
};

/// `outs` and `terms` of each of `batch` matrices, at least 1.
inline FloatColumnPlan plan_float_columns(int64_t batch, int64_t outs, int64_t terms) {
  constexpr int64_t kWarps = FloatColumnPlan::kThreads / 32;
  FloatColumnPlan plan{.tiles = detail::divide_up(outs, FloatColumnPlan::kOuts),
                       .steps = static_cast<int>(detail::divide_up(terms, FloatColumnPlan::kStep))};
  plan.blocks = std::min(detail::divide_up(batch * plan.tiles, kWarps),
                         detail::kProcessors * int64_t{FloatColumnPlan::kBlocks});
  return plan;
}

/// Products that sum up few terms for many outs, with several vectors: a warp takes groups of group_outs()
/// outs, `turns` of them, and no two warps share any.
struct FewTermPlan {
  static constexpr int kThreads = 256;  ///< of a block

  int slots = 4;       ///< sums of an out, a multiple of 4, of which the vectors' count
  int turns = 1;       ///< groups of a warp
  int64_t groups = 1;  ///< of a matrix, the last of which may have fewer outs
  int64_t blocks = 1;  ///< of a matrix

  /// Outs of a warp at once: 128 bytes of a column.
  static constexpr int group_outs(size_t element_bytes) { return 128 / static_cast<int>(element_bytes); }
  /// Groups whose columns a warp loads together, so that enough is in flight.
  static constexpr int groups_ahead(int terms) { return terms <= 2 ? 6 : terms <= 6 ? 2 : 1; }
  static constexpr int kMostTerms = 13;  ///< beyond which arithmetic would take much longer than memory
};

inline FewTermPlan plan_few_terms(int64_t batch, int64_t outs, int vectors, size_t element_bytes) {
  constexpr int64_t kWarps = FewTermPlan::kThreads / 32, kMostTurns = 16;
  constexpr int64_t kEnoughBlocks = detail::kProcessors * 12;  // four waves
  FewTermPlan plan{.slots = (vectors + 3) / 4 * 4};
  plan.groups = detail::divide_up(outs, FewTermPlan::group_outs(element_bytes));
  plan.turns =
      static_cast<int>(std::clamp<int64_t>(batch * plan.groups / (kWarps * kEnoughBlocks), 1, kMostTurns));
  plan.blocks = detail::divide_up(plan.groups, kWarps * plan.turns);
  return plan;
}

}  // namespace sinter::ops
