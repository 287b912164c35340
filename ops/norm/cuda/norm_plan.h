// How a GPU walks a tensor to sum it up, or to map it, channel by channel. Pure arithmetic, without CUDA.
//
// By columns: the tensor is a matrix of `items` rows of `width` elements in which every column belongs to one
// channel (NHWC; or NCHW with each image as a row, where planes are too short or odd for whole packs). A
// block has `columns` threads beside each other, each with `pack` neighbouring columns, and `lanes` threads
// below each other; the blocks of all parts sweep the rows together, so that they read neighbouring memory at
// any time. By planes: the threads of a block take packs of one channel, all parts of it together.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

struct NormPlan {
  static constexpr int kThreads = 256;
  static constexpr int kGroup = 8;  ///< elements whose bits are one byte of the mask

  bool by_columns = false;
  int pack = 1;  ///< elements of an access
  int64_t channels = 0;
  int64_t inner = 1;  ///< neighbouring columns, or elements of a plane, that belong to one channel
  int64_t width = 0;  ///< columns of the matrix; by planes, channels
  int64_t items = 0;  ///< rows of the matrix; by planes, packs of a channel
  int64_t tiles = 0;  ///< blocks beside each other; by planes, channels
  int64_t parts = 0;  ///< blocks that share the items of a tile; 0 if the tensor is empty
  int columns = 1;    ///< threads beside each other, a power of two up to 32; by planes, 1

  int lanes() const { return kThreads / columns; }
  int64_t blocks() const { return tiles * parts; }
  /// Partial results that a channel has in a table: `parts` lines of `columns_per_channel` neighbours.
  constexpr int64_t columns_per_channel() const { return by_columns ? inner : 1; }
  /// Elements of a table with one value for every part of every column.
  int64_t table_size() const { return parts * width; }
};

/// With one channel, or one element, there is a simpler view of the same tensor.
inline ChannelView simplified_norm_view(const ChannelView& view) {
  if (view.channels == 1) return {.outer = 1, .channels = 1, .inner = view.numel()};
  return view;
}

namespace detail {

inline constexpr int64_t kMostItemsPerThread = 512;  // that a thread sums up in the compute type
inline constexpr int64_t kLeastItemsPerThread = 8;
inline constexpr int64_t kLeastImagesAsRows = 32;  // else the table is not small against the tensor

/// Whether the tensor is walked by columns, and whether in packs: of `pack` elements (1, or a divisor of a
/// group), by planes of `plane_pack`.
inline NormPlan norm_walk(const ChannelView& view, int pack, int plane_pack) {
  const int64_t image = view.channels * view.inner;
  NormPlan plan{.channels = view.channels, .inner = view.inner};
  const bool whole_planes = view.inner % NormPlan::kGroup == 0, whole_images = image % NormPlan::kGroup == 0;
  plan.by_columns =
      view.inner == 1 || (pack > 1 && !whole_planes && whole_images && view.outer >= kLeastImagesAsRows);
  plan.pack = plan.by_columns ? (whole_images ? pack : 1) : whole_planes ? plane_pack : 1;
  if (plan.by_columns) {
    const int64_t packs = image / plan.pack;
    plan.width = image;
    plan.items = image == 0 ? 0 : view.outer;
    plan.columns = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(packs, 1, 32))));
    plan.tiles = (packs + plan.columns - 1) / plan.columns;
  } else {
    plan.width = view.channels;
    plan.items = view.channels == 0 ? 0 : view.outer * (view.inner / plan.pack);
    plan.tiles = view.channels;
  }
  return plan;
}

}  // namespace detail

/// To sum every channel up, in packs of `pack` elements (by planes, `plane_pack`) where that is possible,
/// with about `blocks` blocks, all of which the GPU can hold at a time.
inline NormPlan plan_norm_sums(const ChannelView& view, int pack, int plane_pack, int64_t blocks) {
  NormPlan plan = detail::norm_walk(view, pack, plane_pack);
  if (plan.items == 0 || plan.tiles == 0) return plan;
  const auto parts_of = [&](int64_t per_thread) {
    return (plan.items + plan.lanes() * per_thread - 1) / (plan.lanes() * per_thread);
  };
  plan.parts = std::clamp<int64_t>(blocks / plan.tiles, 1, parts_of(detail::kLeastItemsPerThread));
  plan.parts = std::max(plan.parts, parts_of(detail::kMostItemsPerThread));
  return plan;
}

/// To map a tensor by columns in packs of `pack` elements with about `blocks` blocks. Only for views with
/// inner == 1 whose channels come in whole groups.
inline NormPlan plan_norm_map(const ChannelView& view, int pack, int64_t blocks) {
  NormPlan plan = detail::norm_walk(view, pack, pack);
  if (plan.items == 0 || plan.tiles == 0) return plan;
  const int64_t most = (plan.items + plan.lanes() - 1) / plan.lanes();
  plan.parts = std::clamp<int64_t>(blocks / plan.tiles, 1, most);
  return plan;
}

}  // namespace sinter::ops
