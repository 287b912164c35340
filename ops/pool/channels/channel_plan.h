// How a GPU cuts a tensor into blocks to sum it up, or walk it, channel by channel. Pure arithmetic, without
// CUDA.
//
// Channels side by side (`rows`): a block has `columns` threads beside each other, each with `pack`
// neighbouring channels, and `lanes` threads below each other that take every lanes-th row of the block's
// part of the rows. Else a block's threads take every 256th pack of one channel's part. The cut depends on
// the shape and `pack` alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace sinter::ops {

struct ChannelPlan {
  static constexpr int kThreads = 256;

  int64_t sums = 0;      ///< channels of all groups: the width of a table of partial results
  int64_t items = 0;     ///< rows of a group, or packs of a channel: what is cut into parts
  int64_t per_item = 1;  ///< elements of a channel in an item
  int64_t parts = 0;     ///< of every channel; 0 if the tensor is empty
  int64_t tiles = 0;     ///< blocks that lie beside each other
  int columns = 1;       ///< threads of a block that lie beside each other

  int lanes() const { return kThreads / columns; }
  /// Bytes of a table of `values` partial results for every part of every channel.
  size_t table_bytes(int values) const {
    return static_cast<size_t>(parts * sums) * static_cast<size_t>(values) * sizeof(double);
  }
};

namespace detail {

/// Parts so that `blocks` times them fill a large GPU once and every part has some work.
inline int64_t channel_parts(int64_t items, int64_t blocks, int64_t per_part) {
  constexpr int64_t kBlocks = 1024;
  if (items == 0 || blocks == 0) return 0;
  return std::clamp<int64_t>(kBlocks / blocks, 1, std::max<int64_t>(items / per_part, 1));
}

}  // namespace detail

/// `groups` matrices of `rows` x `channels`, one sum for every column of every matrix. `pack` divides
/// `channels`.
inline ChannelPlan plan_channel_rows(int64_t groups, int64_t rows, int64_t channels, int64_t pack) {
  const int64_t vectors = channels / pack;
  ChannelPlan plan{.sums = groups * channels, .items = rows};
  plan.columns = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(vectors, 1, 32))));
  plan.tiles = (vectors + plan.columns - 1) / plan.columns;
  plan.parts = detail::channel_parts(rows, groups * plan.tiles, int64_t{4} * plan.lanes());
  return plan;
}

/// A tensor (outer, channels, inner), one sum for every channel. `pack` divides `inner`.
inline ChannelPlan plan_channel_runs(int64_t outer, int64_t channels, int64_t inner, int64_t pack) {
  ChannelPlan plan{.sums = channels, .items = outer * (inner / pack), .per_item = pack, .tiles = channels};
  plan.parts = detail::channel_parts(plan.items, channels, int64_t{4} * ChannelPlan::kThreads);
  return plan;
}

}  // namespace sinter::ops
