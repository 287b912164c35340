// How a GPU cuts products of a matrix with one or a few vectors whose sums run along the matrix's columns
// (y = a^T x). Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <sinter/ops/gemv/plan/row_plan.h>

namespace sinter::ops {

/// Sums along columns: a block has `width` threads side by side, each with a pack of columns, and depth()
/// rows of threads below each other that take every depth()-th row of the block's part of the rows. Sums of
/// several parts are added by a second kernel. Blocks are wider than usual where rows are so few that threads
/// would have none, or where there are blocks enough.
struct ColumnSumPlan {
  static constexpr int kThreads = 512;  ///< of a block
  static constexpr int kUsualWidth = 16;
  static constexpr int kAtOnce = 4;             ///< rows of a thread in flight
  static constexpr int64_t kBlocks = 2;         ///< that a processor runs at once
  static constexpr int64_t kMostBlocks = 8192;  ///< beyond which there are small blocks enough

  int pack = 1;  ///< elements of an access; divides the columns
  int width = 1;
  int64_t tiles = 0;      ///< blocks side by side
  int64_t part_rows = 0;  ///< of a part, the last of which may have fewer
  int64_t parts = 1;

  int depth() const { return kThreads / width; }
};

namespace detail {

/// Whether a block may have rows of `packs` side by side: few of its threads have none.
inline bool fills_blocks(int64_t packs) {
  constexpr int64_t kLeastThreads = ColumnSumPlan::kThreads * 5 / 8;
  return packs <= ColumnSumPlan::kThreads && ColumnSumPlan::kThreads / packs * packs >= kLeastThreads;
}

/// The most threads side by side for `packs` of columns and `rows`: a power of two times the usual width; or
/// a whole row, so that what a block reads is contiguous, where parts of it would begin within lines.
inline int64_t column_sum_width(int64_t processors, int64_t matrices, int64_t rows, int64_t packs, int pack) {
  int64_t width = ColumnSumPlan::kUsualWidth;
  if (packs > width && packs % width != 0 && packs * pack <= ColumnSumPlan::kThreads && fills_blocks(packs)) {
    constexpr int64_t kLeastBatches = 2;
    const int64_t batch = ColumnSumPlan::kAtOnce * (ColumnSumPlan::kThreads / packs);
    if (rows >= divide_up(processors * ColumnSumPlan::kBlocks * kLeastBatches, matrices) * batch)
      return packs;
  }
  // A thread writes one sum at most.
  while (2 * width * pack <= ColumnSumPlan::kThreads && 2 * width <= packs) {
    const int64_t depth = ColumnSumPlan::kThreads / width, blocks = matrices * divide_up(packs, 2 * width);
    const bool idle = ColumnSumPlan::kAtOnce * depth > rows + rows / 4;
    if (blocks < processors * (idle ? 1 : kBlocksOfProcessor)) break;
    width *= 2;
  }
  return width;
}

/// Into how many parts `blocks` side by side cut `batches` of rows, up to `most`, where a part would have one
/// batch: that leaves the least for waves of blocks, each with a start and a sum over its threads, and a
/// second kernel. Unit: the time in which memory brings a wave's batch.
inline int64_t parts_of_few_batches(int64_t wave, int64_t blocks, int64_t batches, int64_t most) {
  constexpr double kStart = 1, kFold = 1, kManyWaves = 4;
  int64_t best = most;
  double least = 0;
  for (int64_t parts = most; parts >= 1; --parts) {
    const auto full = static_cast<double>(blocks * parts) / static_cast<double>(wave);
    const double waves = full > kManyWaves ? full + 0.5 : std::ceil(full);
    const double cost =
        waves * (static_cast<double>(divide_up(batches, parts)) + kStart) + (parts > 1 ? kFold : 0);
    if (parts == most || cost < least) least = cost, best = parts;
  }
  return best;
}

// Folded rows of a part at least, so that a table of sums is small: of whole rows, and of stripes.
inline constexpr int64_t kLeastWholeRows = 16, kLeastStripeRows = 32;

/// The most threads side by side for folded rows, which begin anywhere in a line: a whole row, or stripes of
/// half a KB and more that make whole waves of blocks. Unit: as above.
inline int64_t folded_width(int64_t processors, int64_t matrices, int64_t rows, int64_t packs,
                            int64_t columns) {
  constexpr int64_t kLeastWidth = 32, kMostWidth = 256, kMostWaves = 4, kWidest = 4;
  constexpr double kStart = 1, kShared = 4;  // packs of 64 bytes of memory, which two stripes share
  constexpr double kIdle = 0.25;             // of the time of the last wave, if it had no blocks
  constexpr double kTable = 4;               // rows that take as long as a row of sums, written and read
  const int64_t wave = processors * ColumnSumPlan::kBlocks;
  const bool has_blocks = rows >= divide_up(kLeastWholeRows * processors, matrices);
  if (columns <= ColumnSumPlan::kThreads && fills_blocks(packs) && (has_blocks || packs <= kLeastWidth)) {
    return packs;
  }
  int64_t best = kLeastWidth;
  double least = 0;
  const auto try_width = [&](int64_t width, int64_t wanted) {
    const int64_t tiles = divide_up(packs, width),
                  batch = ColumnSumPlan::kAtOnce * (ColumnSumPlan::kThreads / width);
    const int64_t most = std::max<int64_t>(rows / std::max(batch, kLeastStripeRows), 1);
    const int64_t parts = std::clamp<int64_t>(wanted / tiles, 1, most);
    const auto full = static_cast<double>(matrices * tiles * parts) / static_cast<double>(wave);
    const double taken = full > kMostWaves ? full + 0.5 : std::ceil(full);
    const double batches = static_cast<double>(rows) / static_cast<double>(batch * parts);
    const double waste = kShared / static_cast<double>(width) + kIdle * (taken - full) / taken +
                         kTable * static_cast<double>(parts) / static_cast<double>(rows);
    const double cost = taken * (batches + kStart) * (1 + waste);
    if (least == 0 || cost < least) least = cost, best = width;
  };
  const int64_t fewest = divide_up(packs, kMostWidth);
  for (int64_t waves = 1; waves <= kMostWaves; ++waves) {
    const int64_t wanted = std::max<int64_t>(waves * wave / matrices, 1);
    try_width(std::clamp(divide_up(packs, wanted), kLeastWidth, kMostWidth), wanted);
    for (int64_t tiles = fewest; tiles < fewest + kWidest; ++tiles) {
      try_width(std::max(divide_up(packs, tiles), kLeastWidth), wanted);
    }
  }
  return best;
}

}  // namespace detail

/// `rows` and `columns` of one of `matrices`; about `most_blocks` at most, unless some would be idle;
/// `width`: the most threads side by side, of folded rows.
inline ColumnSumPlan plan_column_sums(int64_t processors, int64_t matrices, int64_t rows, int64_t columns,
                                      int pack, int64_t most_blocks = ColumnSumPlan::kMostBlocks,
                                      int64_t width = 0) {
  const int64_t wave = processors * ColumnSumPlan::kBlocks;
  constexpr int64_t kUsualParts = 64;  // of a column: small blocks even out what the GPU's parts do
  constexpr int64_t kManyRows = 32;    // of a thread, from which on four blocks to a processor pay,
  constexpr int64_t kSomeRows = 8;     // and two
  ColumnSumPlan plan{.pack = pack};
  const int64_t packs = std::max<int64_t>(columns / pack, 1);
  const bool folded = width != 0;
  if (!folded) width = detail::column_sum_width(processors, matrices, rows, packs, pack);
  plan.tiles = detail::divide_up(packs, width);
  plan.width = static_cast<int>(detail::divide_up(packs, plan.tiles));
  const int64_t blocks = std::max<int64_t>(matrices * plan.tiles, 1), depth = plan.depth();
  // Wide blocks are for few rows, whose parts would be a table that is not small against the matrix.
  const int64_t usual = plan.width > ColumnSumPlan::kUsualWidth ? 2 * processors / blocks
                                                                : std::min(kUsualParts, most_blocks / blocks);
  const int64_t wanted =
      std::max({usual, processors / blocks, std::min(2 * processors / blocks, rows / (kSomeRows * depth)),
                std::min(4 * processors / blocks, rows / (kManyRows * depth))});
  // Parts are whole batches of what the threads have in flight.
  const int64_t batch = ColumnSumPlan::kAtOnce * depth;
  const int64_t least_rows = !folded           ? 1
                             : plan.tiles == 1 ? detail::kLeastWholeRows
                                               : detail::kLeastStripeRows;
  const int64_t least = detail::divide_up(least_rows, batch) * batch;
  const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(rows / least, 1));
  const auto cut = [&](int64_t part_rows) {
    plan.part_rows = part_rows;
    plan.parts = std::max<int64_t>(detail::divide_up(rows, part_rows), 1);
  };
  if (parts == 1) {
    cut(std::max<int64_t>(rows, 1));
    return plan;
  }
  cut(std::max<int64_t>((rows + parts * batch / 2) / (parts * batch), 1) * batch);
  if (folded) {
    // No few blocks behind the last whole wave.
    if (blocks * plan.parts > wave) cut(detail::divide_up(rows, parts * batch) * batch);
    return plan;
  }
  if (plan.part_rows == batch && blocks * plan.parts > wave) {
    const int64_t batches = detail::divide_up(rows, batch);
    const int64_t fewer = detail::parts_of_few_batches(wave, blocks, batches, plan.parts);
    cut(fewer == 1 ? rows : detail::divide_up(batches, fewer) * batch);
  }
  // A few blocks more than the GPU runs at once would be a wave of their own, as long as the first.
  constexpr int64_t kLongPart = 4;  // batches
  const int64_t all = blocks * plan.parts;
  if (all > wave && all <= wave + wave / 4 && plan.part_rows >= kLongPart * batch) {
    cut(detail::divide_up(rows, std::max<int64_t>(wave / blocks, 1) * batch) * batch);
  }
  return plan;
}

/// Sums along columns of few rows that begin with units, or anywhere in the 16-bit types: a thread has
/// `packs` packs of neighbouring columns, `threads` packs apart, and walks down all rows, `at_once` in
/// flight. Nothing is added across threads.
struct FewRowPlan {
  static constexpr int kThreads = 256;  ///< of a block
  static constexpr int kBlocks = 3;     ///< of a processor
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
inline FewRowPlan plan_few_rows(int64_t processors, int64_t batch, int64_t rows, int64_t columns, int pack) {
  FewRowPlan plan;
  plan.packs = detail::packs_of_columns(batch, rows, detail::divide_up(columns, pack), FewRowPlan::kLoads,
                                        FewRowPlan::kThreads, processors * FewRowPlan::kBlocks);
  plan.tiles = detail::divide_up(columns, int64_t{FewRowPlan::kThreads} * plan.packs * pack);
  return plan;
}

/// Whether sums along the columns of `batch` matrices are worth threads that walk down whole columns: rows
/// are few, and threads enough to keep memory busy, or so few that others have no more. Rows of whole units
/// have another good kernel, where threads would be a few waves that take long.
inline bool is_few_rows(int64_t processors, int64_t batch, int64_t rows, int64_t columns, int pack) {
  constexpr int64_t kManyWaves = 4, kShortRows = 32;
  const int64_t wave = processors * FewRowPlan::kBlocks;
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
  return blocks * batch <= wave || blocks >= detail::divide_up(kManyWaves * wave, batch);
}

}  // namespace sinter::ops
