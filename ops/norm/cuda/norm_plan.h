// How a GPU walks a tensor to sum it up, or to map it, channel by channel. Pure arithmetic, without CUDA.
//
// By columns: the tensor is a matrix of `items` rows of `width` elements in which every column belongs to one
// channel (NHWC; or NCHW with each image as a row, where planes are too short or odd for whole packs). A
// block has `columns` threads beside each other, each with `pack` neighbouring columns, and `lanes` threads
// below each other; the blocks of all parts sweep the rows together, so that they read neighbouring memory at
// any time. By planes: the threads of a block take packs of one channel, all parts of it together.
//
// Where channels or planes do not come in whole packs, packs may straddle them: by columns `fold` rows of the
// tensor make one row of the matrix, as many as whole packs need, and what is left behind the last such row
// is its `rest`; by planes the packs are those of memory, and the elements of a plane's first and last pack
// that belong to its neighbours are left out.
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
  int columns = 1;         ///< threads beside each other, a power of two up to 32; by planes, 1

  int lanes() const { return kThreads / columns; }
  int64_t blocks() const { return tiles * parts; }
  /// Packs that a plane may have a share in, where they straddle.
  constexpr int64_t plane_packs() const { return straddles ? (inner + pack - 1) / pack + 1 : inner / pack; }
  /// Columns of the tensor, before they were folded.
  constexpr int64_t image() const { return width / fold; }
  /// Whether a block adds up all columns of a channel that it has, so that one line of a part is `image()`
  /// long.
  constexpr bool adds_folds() const { return fold > 1 && tiles == 1; }
  /// Partial results that a channel has in a table: `parts` lines of `columns_per_channel` neighbours.
  constexpr int64_t columns_per_channel() const { return by_columns ? inner : 1; }
  /// Elements of a table with one value for every part of every column.
  int64_t table_size() const { return parts * width; }
  /// The lines of that table without folds: they lie one behind the other.
  NormPlan unfolded() const {
    NormPlan plan = *this;
    plan.width = image();
    plan.parts *= adds_folds() ? tiles : fold;
    plan.fold = 1;
    return plan;
  }
};

/// Which packs a kernel takes: only those within a row of channels or a plane, or those that straddle them
/// too.
enum class NormPacks { kWithin, kStraddling };

/// With one channel, or one element, there is a simpler view of the same tensor.
inline ChannelView simplified_norm_view(const ChannelView& view) {
  if (view.channels == 1) return {.outer = 1, .channels = 1, .inner = view.numel()};
  return view;
}

namespace detail {

inline constexpr int64_t kMostItemsPerThread = 512;  // that a thread sums up in the compute type
inline constexpr int64_t kLeastItemsPerThread = 4;
inline constexpr int64_t kLeastImagesAsRows = 32;  // else the table is not small against the tensor

inline constexpr int64_t kMostFolds = 16;            // times the fewest rows that give whole packs
inline constexpr int64_t kLeastFoldedRows = 4;       // else most of the tensor is its rest
inline constexpr int64_t kLeastStraddledPlane = 64;  // of shorter ones too much is another's

/// How many threads beside each other take `packs`.
inline int norm_columns(int64_t packs) {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(packs, 1, 32))));
}

/// How many rows of `image` elements to make one row of: the fewest that come in groups and leave few threads
/// idle.
inline int64_t norm_fold(int64_t image, int64_t rows, int pack) {
  const int64_t least = NormPlan::kGroup / std::gcd<int64_t>(image, NormPlan::kGroup);
  int64_t best = least;
  double best_share = 0.0;
  for (int64_t fold = least; fold <= kMostFolds * least && fold * kLeastFoldedRows <= rows; fold += least) {
    const int64_t packs = fold * image / pack, columns = norm_columns(packs);
    const double share =
        static_cast<double>(packs) / static_cast<double>((packs + columns - 1) / columns * columns);
    if (share > best_share) best = fold, best_share = share;
    if (share >= 0.93) break;
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
  plan.columns = norm_columns(packs);
  plan.tiles = (packs + plan.columns - 1) / plan.columns;
}

/// Whether the tensor is walked by columns, and whether in packs: of `pack` elements (1, or a divisor of a
/// group), by planes of `plane_pack`.
inline NormPlan norm_walk(const ChannelView& view, int pack, int plane_pack, NormPacks packs) {
  const int64_t image = view.channels * view.inner;
  NormPlan plan{.channels = view.channels, .inner = view.inner};
  const bool whole_planes = view.inner % NormPlan::kGroup == 0, whole_images = image % NormPlan::kGroup == 0;
  const bool straddles = packs == NormPacks::kStraddling && pack > 1 && image > 0;
  const bool rows = view.inner == 1 || (!whole_planes && view.outer >= kLeastImagesAsRows);
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
/// with about `blocks` blocks, all of which the GPU can hold at a time.
inline NormPlan plan_norm_sums(const ChannelView& view, int pack, int plane_pack, int64_t blocks,
                               NormPacks packs = NormPacks::kWithin) {
  NormPlan plan = detail::norm_walk(view, pack, plane_pack, packs);
  if (plan.items == 0 || plan.tiles == 0) return plan;
  const auto parts_of = [&](int64_t per_thread) {
    return (plan.items + plan.lanes() * per_thread - 1) / (plan.lanes() * per_thread);
  };
  plan.parts = std::clamp<int64_t>(blocks / plan.tiles, 1, parts_of(detail::kLeastItemsPerThread));
  plan.parts = std::max(plan.parts, parts_of(detail::kMostItemsPerThread));
  return plan;
}

/// Whether a tensor can be mapped by columns in packs of `pack` elements: one without planes, with rows
/// enough.
inline bool maps_by_columns(const ChannelView& view, int pack) {
  return view.inner == 1 && detail::norm_walk(view, pack, pack, NormPacks::kStraddling).pack > 1;
}

/// To map a tensor by columns in packs of `pack` elements with about `blocks` blocks. Only for views that
/// maps_by_columns takes.
inline NormPlan plan_norm_map(const ChannelView& view, int pack, int64_t blocks) {
  NormPlan plan = detail::norm_walk(view, pack, pack, NormPacks::kStraddling);
  if (plan.items == 0 || plan.tiles == 0) return plan;
  const int64_t most = (plan.items + plan.lanes() - 1) / plan.lanes();
  plan.parts = std::clamp<int64_t>(blocks / plan.tiles, 1, most);
  return plan;
}

}  // namespace sinter::ops
