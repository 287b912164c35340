// How a GPU cuts products of a matrix with one or a few vectors. Pure arithmetic, without CUDA.
//
// Such products are bound by reading the matrix, once. It is row-major, (rows, columns); the sums run along
// its rows (y = a x) or along its columns (y = a^T x).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace sinter::ops {

/// Sums along rows: `lanes` neighbouring threads of a warp share a row, each takes every lanes-th pack. Short
/// rows are taken at once, `unroll` packs to a lane; along longer ones a whole warp walks, `unroll` packs in
/// flight. Where such rows are few they are cut into parts, each with a warp of its own, whose sums a second
/// kernel adds.
struct RowSumPlan {
  static constexpr int kThreads = 256;     ///< of a block
  static constexpr int kWideAtOnce = 2;    ///< packs of a lane in short rows: of 16 bytes
  static constexpr int kNarrowAtOnce = 5;  ///< the same for narrower packs
  static constexpr int kWalking = 4;

  int pack = 1;            ///< elements of an access; divides the columns
  int lanes = 1;           ///< a power of two, at most 32
  int unroll = 1;          ///< packs of a lane in flight
  bool at_once = false;    ///< lanes * unroll packs are enough for a row
  int64_t packs = 0;       ///< of a row
  int64_t part_packs = 0;  ///< of a part, the last of which may have fewer
  int64_t parts = 1;

  int rows_per_block() const { return kThreads / lanes; }
};

/// Sums along columns: a block has `width` threads side by side, each with a pack of columns, and depth()
/// rows of threads below each other that take every depth()-th row of the block's part of the rows. Sums of
/// several parts are added by a second kernel. Blocks are wider than usual where rows are so few that threads
/// would have none, or where there are blocks enough.
struct ColumnSumPlan {
  static constexpr int kThreads = 512;  ///< of a block
  static constexpr int kUsualWidth = 16;
  static constexpr int kAtOnce = 4;             ///< rows of a thread in flight
  static constexpr int64_t kWave = 132 * 2;     ///< blocks that a large GPU runs at once
  static constexpr int64_t kMostBlocks = 8192;  ///< beyond which there are small blocks enough

  int pack = 1;  ///< elements of an access; divides the columns
  int width = 1;
  int64_t tiles = 0;      ///< blocks side by side
  int64_t part_rows = 0;  ///< of a part, the last of which may have fewer
  int64_t parts = 1;

  int depth() const { return kThreads / width; }
};

namespace detail {

inline constexpr int64_t kProcessors = 132;              // of a large GPU
inline constexpr int64_t kThinBlocks = kProcessors * 8;  // that it runs at once
inline constexpr int64_t kMostParts = 65535;             // a limit of grids

inline int64_t divide_up(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

}  // namespace detail

/// `rows` of all matrices of a batch together, `columns` of one; `wide`: packs have 16 bytes. Depends on the
/// sizes alone.
inline RowSumPlan plan_row_sums(int64_t rows, int64_t columns, int pack, bool wide) {
  constexpr int64_t kLeastPart = 8;  // packs of a lane below which cutting a row does not pay
  RowSumPlan plan{.pack = pack, .packs = columns / pack};
  const int64_t packs = std::max<int64_t>(plan.packs, 1);
  plan.unroll = wide ? RowSumPlan::kWideAtOnce : RowSumPlan::kNarrowAtOnce;
  plan.at_once = packs <= int64_t{32} * plan.unroll;
  if (!plan.at_once) plan.unroll = RowSumPlan::kWalking;
  plan.lanes = static_cast<int>(
      std::bit_ceil(std::min<uint64_t>(static_cast<uint64_t>(detail::divide_up(packs, plan.unroll)), 32)));
  plan.part_packs = packs;
  if (plan.at_once) return plan;
  const int64_t blocks = std::max<int64_t>(detail::divide_up(rows, plan.rows_per_block()), 1);
  const int64_t most = std::max<int64_t>(packs / (kLeastPart * plan.lanes), 1);
  const int64_t parts =
      std::clamp<int64_t>(detail::kThinBlocks / blocks, 1, std::min(most, detail::kMostParts));
  plan.part_packs = detail::divide_up(packs, parts);
  plan.parts = detail::divide_up(packs, plan.part_packs);
  return plan;
}

namespace detail {

/// Whether a block may have rows of `packs` side by side: few of its threads have none.
inline bool fills_blocks(int64_t packs) {
  constexpr int64_t kLeastThreads = ColumnSumPlan::kThreads * 5 / 8;
  return packs <= ColumnSumPlan::kThreads && ColumnSumPlan::kThreads / packs * packs >= kLeastThreads;
}

/// The most threads side by side for `packs` of columns and `rows`: a power of two times the usual width; or
/// a whole row, so that what a block reads is contiguous, where parts of it would begin within lines.
inline int64_t column_sum_width(int64_t matrices, int64_t rows, int64_t packs, int pack) {
  int64_t width = ColumnSumPlan::kUsualWidth;
  if (packs > width && packs % width != 0 && packs * pack <= ColumnSumPlan::kThreads && fills_blocks(packs)) {
    constexpr int64_t kLeastBatches = 2;
    const int64_t batch = ColumnSumPlan::kAtOnce * (ColumnSumPlan::kThreads / packs);
    if (rows >= divide_up(ColumnSumPlan::kWave * kLeastBatches, matrices) * batch) return packs;
  }
  // A thread writes one sum at most.
  while (2 * width * pack <= ColumnSumPlan::kThreads && 2 * width <= packs) {
    const int64_t depth = ColumnSumPlan::kThreads / width, blocks = matrices * divide_up(packs, 2 * width);
    const bool idle = ColumnSumPlan::kAtOnce * depth > rows + rows / 4;
    if (blocks < (idle ? kProcessors : kThinBlocks)) break;
    width *= 2;
  }
  return width;
}

/// Into how many parts `blocks` side by side cut `batches` of rows, up to `most`, where a part would have one
/// batch: that leaves the least for waves of blocks, each with a start and a sum over its threads, and a
/// second kernel. Unit: the time in which memory brings a wave's batch.
inline int64_t parts_of_few_batches(int64_t blocks, int64_t batches, int64_t most) {
  constexpr double kStart = 1, kFold = 1, kManyWaves = 4;
  int64_t best = most;
  double least = 0;
  for (int64_t parts = most; parts >= 1; --parts) {
    const auto full = static_cast<double>(blocks * parts) / static_cast<double>(ColumnSumPlan::kWave);
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
inline int64_t folded_width(int64_t matrices, int64_t rows, int64_t packs, int64_t columns) {
  constexpr int64_t kLeastWidth = 32, kMostWidth = 256, kMostWaves = 4, kWidest = 4;
  constexpr double kStart = 1, kShared = 4;  // packs of 64 bytes of memory, which two stripes share
  constexpr double kIdle = 0.25;             // of the time of the last wave, if it had no blocks
  constexpr double kTable = 4;               // rows that take as long as a row of sums, written and read
  const bool has_blocks = rows >= divide_up(kLeastWholeRows * kProcessors, matrices);
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
    const auto full =
        static_cast<double>(matrices * tiles * parts) / static_cast<double>(ColumnSumPlan::kWave);
    const double taken = full > kMostWaves ? full + 0.5 : std::ceil(full);
    const double batches = static_cast<double>(rows) / static_cast<double>(batch * parts);
    const double waste = kShared / static_cast<double>(width) + kIdle * (taken - full) / taken +
                         kTable * static_cast<double>(parts) / static_cast<double>(rows);
    const double cost = taken * (batches + kStart) * (1 + waste);
    if (least == 0 || cost < least) least = cost, best = width;
  };
  const int64_t fewest = divide_up(packs, kMostWidth);
  for (int64_t waves = 1; waves <= kMostWaves; ++waves) {
    const int64_t wanted = std::max<int64_t>(waves * ColumnSumPlan::kWave / matrices, 1);
    try_width(std::clamp(divide_up(packs, wanted), kLeastWidth, kMostWidth), wanted);
    for (int64_t tiles = fewest; tiles < fewest + kWidest; ++tiles) {
      try_width(std::max(divide_up(packs, tiles), kLeastWidth), wanted);
    }
  }
  return best;
}

}  // namespace detail

/// `rows` and `columns` of one of `matrices`; about `most_blocks` at most, unless some would be idle;
/// `width`: the most threads side by side, of folded rows. Depends on the sizes alone.
inline ColumnSumPlan plan_column_sums(int64_t matrices, int64_t rows, int64_t columns, int pack,
                                      int64_t most_blocks = ColumnSumPlan::kMostBlocks, int64_t width = 0) {
  constexpr int64_t kProcessors = detail::kProcessors;
  constexpr int64_t kUsualParts = 64;  // of a column: small blocks even out what the GPU's parts do
  constexpr int64_t kManyRows = 32;    // of a thread, from which on four blocks to a processor pay,
  constexpr int64_t kSomeRows = 8;     // and two
  ColumnSumPlan plan{.pack = pack};
  const int64_t packs = std::max<int64_t>(columns / pack, 1);
  const bool folded = width != 0;
  if (!folded) width = detail::column_sum_width(matrices, rows, packs, pack);
  plan.tiles = detail::divide_up(packs, width);
  plan.width = static_cast<int>(detail::divide_up(packs, plan.tiles));
  const int64_t blocks = std::max<int64_t>(matrices * plan.tiles, 1), depth = plan.depth();
  // Wide blocks are for few rows, whose parts would be a table that is not small against the matrix.
  const int64_t usual = plan.width > ColumnSumPlan::kUsualWidth ? 2 * kProcessors / blocks
                                                                : std::min(kUsualParts, most_blocks / blocks);
  const int64_t wanted =
      std::max({usual, kProcessors / blocks, std::min(2 * kProcessors / blocks, rows / (kSomeRows * depth)),
                std::min(4 * kProcessors / blocks, rows / (kManyRows * depth))});
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
    if (blocks * plan.parts > ColumnSumPlan::kWave) cut(detail::divide_up(rows, parts * batch) * batch);
    return plan;
  }
  if (plan.part_rows == batch && blocks * plan.parts > ColumnSumPlan::kWave) {
    const int64_t batches = detail::divide_up(rows, batch);
    const int64_t fewer = detail::parts_of_few_batches(blocks, batches, plan.parts);
    cut(fewer == 1 ? rows : detail::divide_up(batches, fewer) * batch);
  }
  // A few blocks more than the GPU runs at once would be a wave of their own, as long as the first.
  constexpr int64_t kLongPart = 4;  // batches
  const int64_t all = blocks * plan.parts, wave = ColumnSumPlan::kWave;
  if (all > wave && all <= wave + wave / 4 && plan.part_rows >= kLongPart * batch) {
    cut(detail::divide_up(rows, std::max<int64_t>(wave / blocks, 1) * batch) * batch);
  }
  return plan;
}

/// Sums along many rows of float32, with several vectors, on tensor cores: a block's warps lie side by side
/// over the columns of a tile and below each other over its terms, kStep at a time. Parts, and warps, take
/// steps in turn, so that what is read at once is near. A warp copies what it has to a ring of its own. A
/// second kernel adds the parts.
struct FloatManyTermPlan {
  static constexpr int kLogWarps = 3, kWarps = 1 << kLogWarps, kThreads = 32 * kWarps;  ///< of a block
  static constexpr int kStep = 16, kQuad = 32;  ///< terms and columns that are multiplied together
  static constexpr int kMostQuads = 4;          ///< of a warp

  int log_across = 0;  ///< warps side by side, each with `width` columns
  int width = kQuad;
  int64_t tiles = 1;  ///< of a matrix
  int64_t parts = 1;

  int across() const { return 1 << log_across; }
  int below() const { return kWarps >> log_across; }
  int quads() const { return (width + kQuad - 1) / kQuad; }
  /// Blocks side by side for `items` tiles: where warps share no sums, a block takes several.
  int64_t blocks(int64_t items) const {
    return below() > 1 ? items : std::min(items, std::max<int64_t>(detail::kProcessors / parts, 1));
  }

  /// Words of a row in shared memory, which begins anywhere in a unit; of 4 rows, after which banks are other
  /// ones; and of a step. As many steps of each warp as fit are in flight or in use.
  static constexpr int line_words(int quads) { return kQuad * quads + 4; }
  static constexpr int group_words(int quads) { return 4 * line_words(quads) + 8; }
  static constexpr int stage_words(int quads) { return kStep / 4 * group_words(quads); }
  static constexpr int stages(int quads) { return quads == 1 ? 8 : quads == 2 ? 6 : quads == 3 ? 4 : 3; }
  static constexpr int shared_bytes(int quads) { return kWarps * stages(quads) * stage_words(quads) * 4; }
  /// What a GPU has to have for any plan.
  static constexpr int kMostSharedBytes = 212 * 1024;
};

namespace detail {

/// The time of a plan, in cycles.
inline double float_many_term_cost(const FloatManyTermPlan& plan, int64_t batch, int64_t outs, int64_t steps,
                                   int vectors) {
  constexpr double kBytes = 18, kInstructions = 1.2;  // of a processor, in a cycle
  constexpr double kQuadInstructions = 130, kStepInstructions = 90;
  constexpr double kStart = 2500, kEnd = 500, kFold = 4500;
  constexpr double kShare = 0.15;  // of what takes less time: it is not hidden wholly
  constexpr double kEdges = 64;    // bytes that are read for two pieces of a row
  const int64_t items = batch * plan.tiles, rounds = divide_up(divide_up(steps, plan.below()), plan.parts);
  const int64_t width = std::min(outs, int64_t{plan.across()} * plan.width);
  const double piece = 4.0 * static_cast<double>(width) + (plan.tiles > 1 ? kEdges : 0);
  const double memory = FloatManyTermPlan::kStep * plan.below() * piece / kBytes,
               arithmetic = FloatManyTermPlan::kWarps *
                            (kQuadInstructions * plan.quads() + kStepInstructions) / kInstructions;
  const int64_t blocks = plan.blocks(items), waves = divide_up(blocks * plan.parts, kProcessors);
  const auto passes = static_cast<double>(waves * divide_up(items, blocks));
  const double end = plan.below() > 1 ? kStart : kEnd;
  const double table =
      8.0 * static_cast<double>(plan.parts * batch * outs * vectors) / (kProcessors * kBytes);
  const double round = std::max(memory, arithmetic) + kShare * std::min(memory, arithmetic);
  return passes * (static_cast<double>(rounds) * round + end) + (plan.parts > 1 ? kFold + table : 0);
}

}  // namespace detail

/// `outs` and `terms` of each of `batch` matrices, at least 1.
inline FloatManyTermPlan plan_float_many_terms(int64_t batch, int64_t outs, int64_t terms, int vectors) {
  constexpr int64_t kMostWaves = 3, kSector = 8;  // columns that are read together
  const int64_t steps = detail::divide_up(terms, FloatManyTermPlan::kStep);
  FloatManyTermPlan best;
  double least = 0;
  const auto consider = [&](int log_across, int64_t tiles) {
    FloatManyTermPlan plan{.log_across = log_across};
    const int64_t columns = detail::divide_up(outs, tiles << log_across);
    plan.width = static_cast<int>(detail::divide_up(columns, kSector) * kSector);
    plan.tiles = detail::divide_up(outs, int64_t{plan.width} << log_across);
    const int64_t most = detail::divide_up(steps, plan.below());
    for (int64_t waves = 0; waves <= kMostWaves; ++waves) {
      const int64_t parts = std::clamp<int64_t>(waves * detail::kProcessors / (batch * plan.tiles), 1, most);
      if (waves > 0 && parts == plan.parts) continue;
      plan.parts = parts;
      const double cost = detail::float_many_term_cost(plan, batch, outs, steps, vectors);
      if (least == 0 || cost < least) least = cost, best = plan;
    }
  };
  for (int log_across = 0; log_across <= FloatManyTermPlan::kLogWarps; ++log_across) {
    for (int quads = FloatManyTermPlan::kMostQuads; quads >= 1; --quads) {
      const int64_t tiles = detail::divide_up(outs, int64_t{FloatManyTermPlan::kQuad * quads} << log_across);
      consider(log_across, tiles);
      if (log_across < FloatManyTermPlan::kLogWarps) continue;
      // As many tiles as blocks that take the same number of them.
      consider(log_across,
               detail::divide_up(batch * tiles, detail::kProcessors) * detail::kProcessors / batch);
    }
  }
  return best;
}

}  // namespace sinter::ops
