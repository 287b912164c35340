// How a GPU walks a tensor to sum it up, or to map it, channel by channel. Pure arithmetic, without CUDA.
//
// By columns: the tensor is a matrix of `items` rows of `width` elements in which every column belongs to one
// channel (NHWC; or NCHW with each image as a row, where planes are too short or odd for whole packs). A
// block has `columns` threads beside each other, each with `pack` neighbouring columns, and `lanes` threads
// below each other; those that are left of its threads have nothing to do, so that `columns` is chosen to
// leave few. The blocks of all parts sweep the rows together, so that they read neighbouring memory at any
// time. By planes: the threads of a block take packs of one channel, all parts of it together.
//
// Where channels or planes do not come in whole packs, packs may straddle them: by columns `fold` rows of the
// tensor make one row of the matrix, as many as whole packs need, and what is left behind the last such row
// is its `rest`; by planes the packs are those of memory, and a plane's elements in front of the first pack
// that it has to itself, and behind the last one, are taken one by one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

struct NormPlan {
  static constexpr int kThreads = 256;
  static constexpr int kGroup = 8;  ///< elements whose bits are one byte of the mask

  bool by_columns = false;
  int pack = 1;  ///< elements of an access
  int64_t channels = 0;
  int64_t inner = 1;       ///< neighbouring columns, or elements of a plane, that belong to one channel
  int64_t width = 0;       ///< columns of the matrix; by planes, channels
  int64_t items = 0;       ///< rows of the matrix; by planes, packs of a channel
  int64_t fold = 1;        ///< by columns, rows of the tensor in a row of the matrix
  int64_t rest = 0;        ///< by columns, elements behind the last whole row
  bool straddles = false;  ///< by planes: packs are memory's and may begin before a plane, or end behind it
  int64_t tiles = 0;       ///< blocks beside each other; by planes, channels
  int64_t parts = 0;       ///< blocks that share the items of a tile; 0 if the tensor is empty
  int columns = 1;         ///< threads beside each other; by planes, 1

  constexpr int lanes() const { return kThreads / columns; }
  constexpr int64_t blocks() const { return tiles * parts; }
  /// Packs of a plane: where they straddle, as many as it may have to itself, the last of which it may not.
  constexpr int64_t plane_packs() const { return inner / pack; }
  /// Columns of the tensor, before they were folded.
  constexpr int64_t image() const { return width / fold; }
  /// Whether a block adds up all columns of a channel that it has, so that its line of the table is
  /// `image()` long: where it has several of them.
  constexpr bool adds_folds() const {
    return fold > 1 && (tiles == 1 || int64_t{columns} * pack >= 2 * image());
  }
  /// Partial results that a channel has in a table: `parts` lines of `columns_per_channel` neighbours.
  constexpr int64_t columns_per_channel() const { return by_columns ? inner : 1; }
  /// Elements of a table with one value for every part of every column.
  constexpr int64_t table_size() const { return parts * width; }
  /// The lines of that table without folds: they lie one behind the other.
  NormPlan unfolded() const {
    NormPlan plan = *this;
    plan.width = image();
    plan.parts *= adds_folds() ? tiles : fold;
    plan.fold = 1;
    return plan;
  }
};

/// How blocks add up tables and finish channels: `side` neighbouring channels to each, a power of two up to
/// 32, with threads/side threads for each.
struct NormFinishPlan {
  static constexpr int kMostThreads = 1024, kLeastThreads = 128;

  int side = 1, threads = kMostThreads;
};

/// For `lines` lines of `columns` neighbouring values of each channel. Few lines take few threads: with many
/// channels, blocks that have nothing to do would take longest.
inline NormFinishPlan plan_norm_finish(int64_t lines, int64_t columns) {
  if (columns == 1 && lines <= 16) return {32, NormFinishPlan::kLeastThreads};
  if (columns == 1 && lines <= 64) return {16, 256};
  constexpr int64_t of_thread = 4;
  int threads = NormFinishPlan::kLeastThreads;
  const int side = columns == 1 ? 8 : 1;
  while (threads < NormFinishPlan::kMostThreads && lines * columns * side > of_thread * threads) threads *= 2;
  return {side, threads};
}

/// With one channel, or one element, there is a simpler view of the same tensor.
inline ChannelView simplified_norm_view(const ChannelView& view) {
  if (view.channels == 1) return {.outer = 1, .channels = 1, .inner = view.numel()};
  return view;
}

namespace detail {

inline constexpr int64_t kMostItemsPerThread = 512;  // that a thread sums up in the compute type
inline constexpr int64_t kLeastItemsPerThread = 4;
// At least, where blocks wait for others to end; more by columns, where each has much of a table.
inline constexpr int64_t kItemsPerThreadOfMany = 6;
inline constexpr int64_t kRowsPerThreadOfMany = 16;
inline constexpr int64_t kLeastImagesAsRows = 32;  // else the table is not small against the tensor

inline constexpr int64_t kMostFolds = 16;       // times the fewest rows that give whole packs
inline constexpr int64_t kLeastFoldedRows = 4;  // else most of the tensor is its rest
inline constexpr int64_t kAlignedRow = 256;     // elements: a warp's 32 bytes of the mask, and 512 of 16 bits
inline constexpr int64_t kLeastAlignedRows = 32;     // else too few for the threads below each other
inline constexpr int64_t kLeastStraddledPlane = 64;  // of shorter ones too much is no whole packs
inline constexpr int64_t kLongPlane = 512;           // from which on the table of images as rows is too large

inline constexpr int64_t kLeastColumns = 16;  // 256 bytes, else accesses are of too short a stretch
inline constexpr int64_t kMostColumns = 64;   // more make the table large
inline constexpr double kBusyEnough = 0.9;    // share of threads, or of blocks in the end, with work
inline constexpr double kBusyAligned = 0.85;  // the same, for stretches that begin with sectors
inline constexpr double kBusyGain = 0.02;     // for which something simpler is given up
inline constexpr int64_t kMostRounds = 8;

/// Which share of a block's threads has something to do where `columns` of them, in as many blocks as it
/// needs, take `packs`.
inline double norm_busy_share(int64_t packs, int64_t columns) {
  const int64_t tiles = (packs + columns - 1) / columns;
  return static_cast<double>(packs * (NormPlan::kThreads / columns)) /
         static_cast<double>(tiles * NormPlan::kThreads);
}

/// How many threads beside each other take `packs`, of which stretches are a multiple of `unit`: all of them
/// where that keeps the threads busy, since a block then reads one stretch of memory, else such a number as
/// does.
inline int norm_columns(int64_t packs, int64_t unit) {
  int64_t best = unit;
  double best_share = 0.0;
  const auto consider = [&](int64_t columns) {
    columns = (columns + unit - 1) / unit * unit;
    const double share = norm_busy_share(packs, columns);
    if (share > best_share + kBusyGain) best = columns, best_share = share;
  };
  if (packs <= 32) consider(std::max<int64_t>(packs, 1));
  consider(32);
  if (best_share >= 1.0 - kBusyGain) return static_cast<int>(best);
  for (int64_t columns = std::min<int64_t>(packs - 1, 31); columns >= kLeastColumns; --columns)
    consider(columns);
  for (int64_t columns = 33; columns <= std::min(kMostColumns, packs); ++columns) consider(columns);
  return static_cast<int>(best);
}

/// The same of packs of `pack` elements. Pairs of packs, sectors of 32 bytes, are kept together where that
/// leaves few threads idle; packs that share a byte of the mask always are.
inline int norm_columns_of(int64_t packs, int pack) {
  const int64_t of_byte = pack == 1 ? 1 : NormPlan::kGroup / pack;
  const int64_t unit = std::max<int64_t>(of_byte, packs % 2 == 0 ? 2 : 1);
  const int paired = norm_columns(packs, unit);
  if (unit == of_byte || norm_busy_share(packs, paired) >= kBusyAligned) return paired;
  return norm_columns(packs, of_byte);
}

/// How many rows of `image` elements to make one row of. Where a channel comes often among the columns of a
/// block, so many that each warp has 32 whole sectors of the mask and of everything else; else the fewest
/// that are whole sectors, and leave few threads idle.
inline int64_t norm_fold(int64_t image, int64_t rows, int pack) {
  const auto multiple = [&](int64_t elements) { return elements / std::gcd(image, elements); };
  const int64_t all_aligned = multiple(kAlignedRow);
  if (2 * image <= 32 * pack && all_aligned * kLeastAlignedRows <= rows) return all_aligned;
  int64_t least = multiple(std::max(NormPlan::kGroup, 2 * pack));
  if (least * kLeastFoldedRows > rows) least = multiple(NormPlan::kGroup);
  int64_t best = least;
  double best_share = 0.0;
  for (int64_t fold = least; fold <= kMostFolds * least && fold * kLeastFoldedRows <= rows; fold += least) {
    const int64_t packs = fold * image / pack;
    const double share = norm_busy_share(packs, norm_columns_of(packs, pack));
    if (share > best_share + kBusyGain) best = fold, best_share = share;
    if (share >= kBusyEnough) break;
  }
  return best;
}

/// How many blocks share a tile's items: so many that `blocks` run at a time, or, where that leaves too many
/// of these without work in the end, several times as many. At least `needed`; else at most `most`, and
/// `most_of_many` in the second case.
inline int64_t norm_parts(int64_t tiles, int64_t blocks, int64_t needed, int64_t most, int64_t most_of_many) {
  const auto share_of = [&](int64_t parts) {
    const int64_t all = tiles * parts, rounds = (all + blocks - 1) / blocks;
    return static_cast<double>(all) / static_cast<double>(rounds * blocks);
  };
  const int64_t least = std::max(needed, std::clamp<int64_t>(blocks / tiles, 1, std::max<int64_t>(most, 1)));
  int64_t best = least;
  double best_share = share_of(least);
  for (int64_t parts = least + 1; parts <= most_of_many && parts * tiles <= kMostRounds * blocks; ++parts) {
    if (best_share >= kBusyEnough) break;
    const double share = share_of(parts);
    if (share > best_share + kBusyGain) best = parts, best_share = share;
  }
  return best;
}

/// Cuts images, or rows of channels, into columns.
inline void cut_columns(NormPlan& plan, const ChannelView& view, int64_t fold) {
  const int64_t image = view.channels * view.inner;
  plan.by_columns = true;
  plan.fold = fold;
  plan.width = image * fold;
  plan.items = image == 0 ? 0 : view.outer / fold;
  plan.rest = image == 0 ? 0 : view.outer % fold * image;
  const int64_t packs = plan.width / plan.pack;
  plan.columns = norm_columns_of(packs, plan.pack);
  plan.tiles = (packs + plan.columns - 1) / plan.columns;
}

/// Whether the tensor is walked by columns, and whether in packs: of `pack` elements (1, or a divisor of a
/// group), by planes of `plane_pack`.
inline NormPlan norm_walk(const ChannelView& view, int pack, int plane_pack) {
  const int64_t image = view.channels * view.inner;
  NormPlan plan{.channels = view.channels, .inner = view.inner};
  const bool whole_planes = view.inner % NormPlan::kGroup == 0, whole_images = image % NormPlan::kGroup == 0;
  const bool straddles = pack > 1 && image > 0;
  const bool long_planes = straddles && plane_pack > 1 && view.inner >= kLongPlane;
  const bool rows = view.inner == 1 || (!whole_planes && !long_planes && view.outer >= kLeastImagesAsRows);
  if (whole_images ? view.inner == 1 || (pack > 1 && rows) : view.inner == 1 && !straddles) {
    plan.pack = whole_images ? pack : 1;
    cut_columns(plan, view, 1);
    return plan;
  }
  if (straddles && !whole_images && rows && view.inner < kLeastStraddledPlane) {
    const int64_t fold = norm_fold(image, view.outer, pack);
    if (view.inner == 1 || view.outer >= kLeastImagesAsRows * fold) {
      const bool enough = view.outer >= kLeastFoldedRows * fold;
      plan.pack = enough ? pack : 1;
      cut_columns(plan, view, enough ? fold : 1);
      return plan;
    }
  }
  plan.straddles = straddles && plane_pack > 1 && !whole_planes && view.inner >= kLeastStraddledPlane;
  plan.pack = whole_planes || plan.straddles ? plane_pack : 1;
  plan.width = view.channels;
  plan.items = view.channels == 0 ? 0 : view.outer * plan.plane_packs();
  plan.tiles = view.channels;
  return plan;
}

}  // namespace detail

/// To sum every channel up, in packs of `pack` elements (by planes, `plane_pack`) where that is possible,
/// where the GPU can hold `blocks` blocks at a time.
inline NormPlan plan_norm_sums(const ChannelView& view, int pack, int plane_pack, int64_t blocks) {
  NormPlan plan = detail::norm_walk(view, pack, plane_pack);
  if (plan.items == 0 || plan.tiles == 0) return plan;
  const auto parts_of = [&](int64_t per_thread) {
    return (plan.items + plan.lanes() * per_thread - 1) / (plan.lanes() * per_thread);
  };
  const int64_t of_many = plan.by_columns ? detail::kRowsPerThreadOfMany : detail::kItemsPerThreadOfMany;
  plan.parts =
      detail::norm_parts(plan.tiles, blocks, parts_of(detail::kMostItemsPerThread),
                         parts_of(detail::kLeastItemsPerThread), plan.items / (plan.lanes() * of_many));
  return plan;
}

/// Whether a tensor can be mapped by columns in packs of `pack` elements: one without planes, with rows
/// enough.
inline bool maps_by_columns(const ChannelView& view, int pack) {
  return view.inner == 1 && detail::norm_walk(view, pack, pack).pack > 1;
}

/// To map a tensor by columns in packs of `pack` elements where the GPU can hold `blocks` blocks at a time.
/// Only for views that maps_by_columns takes.
inline NormPlan plan_norm_map(const ChannelView& view, int pack, int64_t blocks) {
  NormPlan plan = detail::norm_walk(view, pack, pack);
  if (plan.items == 0 || plan.tiles == 0) return plan;
  const int64_t most = (plan.items + plan.lanes() - 1) / plan.lanes();
  plan.parts = detail::norm_parts(plan.tiles, blocks, 1, most,
                                  plan.items / (plan.lanes() * detail::kItemsPerThreadOfMany));
  return plan;
}

}  // namespace sinter::ops
