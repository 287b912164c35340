// How the blocks of a GPU share a tensor of which every channel is summed up. For host and device, without
// CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/common/channels/channel_slabs.h>

namespace sinter::ops {

/// What the threads of a block walk over.
enum class ChannelWalk {
  kElements,  ///< fixed columns of rows of all channels, a sum for each element: channels side by side
  kRuns,      ///< the same where a pack changes its channel once at most: two sums
  kPlanes     ///< one channel's planes, wherever they begin: one sum
};

/// The elements [from, to) of a pack, of which there may be none. They begin in run `run` of a row, and that
/// run ends in front of element `change` of the pack.
struct ChannelColumn {
  uint32_t column;
  int from, to;
  uint32_t run;
  int change;

  SINTER_HOST_DEVICE bool is_empty() const { return to <= from; }
};

/// Elements [from, to) of the pack that begins at element `first` of the tensor; none if these are equal.
struct PlanePack {
  uint32_t first;
  int from, to;
};

/// A cut of a tensor (groups, outer, channels, inner) of at most kMostSlabElements elements; a sum for every
/// channel of every group. Several groups have an `inner` of 1. Its numbers depend on shape, size of element
/// and pack, and the kind of GPU alone.
///
/// Fixed columns: a group is `rows` rows of `row` elements, a multiple of all channels and of a pack, and
/// `rest` elements behind them; a run is `inner` neighbours of one channel, and every channel has `copies` of
/// them in a row. A block takes tile (group, t), `tile_runs` runs of a row in `width` packs, the outer ones
/// of which it may share with its neighbours, and part p of the rows; it has `lanes` threads below each
/// other. Planes: a block takes part p of the packs of a channel, `span` to each plane, from the multiple of
/// `line` elements on at which or behind which the plane begins. The sums of part p and copy c are row p *
/// copies + c of a table [table_rows, groups * channels]. With one row they are whole.
struct ChannelCut {
  static constexpr int kMostThreads = 1024;    ///< of a block
  static constexpr int kElementThreads = 512;  ///< of one that walks elements, and the most of a tile
  static constexpr uint32_t kFewLanes = 16;    ///< up to these, such blocks have only the threads they need

  ChannelWalk walk = ChannelWalk::kElements;
  int pack = 1;
  int threads = 32;  ///< of a block, whole warps
  uint32_t groups = 1, outer = 1, channels = 1, inner = 1;
  uint32_t parts = 0;       ///< of every channel; 0 if the tensor is empty
  uint32_t part_steps = 0;  ///< rows of a part, or packs of a channel; the last may have fewer
  uint32_t tiles = 1;       ///< of a group; of planes, the channels

  uint32_t row = 0, rows = 0, rest = 0, columns = 0, copies = 1;
  uint32_t tile_runs = 1, width = 1, lanes = 1;
  /// Threads that add up a run's sums of a block, and how many columns they take at a time.
  int log_members = 0, log_across = 0;

  uint32_t line = 1, span = 0;

  cuda::FastDivide by_inner{}, by_channels{}, by_tiles{}, by_width{}, by_tile{}, by_span{};

  SINTER_HOST_DEVICE uint32_t table_rows() const { return parts * copies; }
  uint32_t all_rows() const { return rows + (rest > 0 ? 1 : 0); }

  // ---- fixed columns

  SINTER_HOST_DEVICE uint32_t runs_of(uint32_t tile) const {
    const uint32_t left = copies * channels - tile * tile_runs;
    return tile_runs < left ? tile_runs : left;
  }
  /// Where in a pack tile `tile` begins.
  SINTER_HOST_DEVICE uint32_t offset_of(uint32_t tile, int of_pack) const {
    return tile * tile_runs * inner % static_cast<uint32_t>(of_pack);
  }
  /// Column x of a tile; `of_pack` is `pack`, which kernels know.
  SINTER_HOST_DEVICE ChannelColumn column_of(uint32_t tile, uint32_t x, int of_pack) const {
    const auto size = static_cast<uint32_t>(of_pack);
    const uint32_t begin = tile * tile_runs * inner, end = begin + runs_of(tile) * inner;
    const uint32_t column = begin / size + x, first = column * size;
    const int from = first < begin ? static_cast<int>(begin - first) : 0;
    const int to = first >= end ? 0 : end - first < size ? static_cast<int>(end - first) : of_pack;
    uint32_t place;
    const uint32_t run = by_inner.divide(first + static_cast<uint32_t>(from), place);
    return {column, from, to, run, from + static_cast<int>(inner - place)};
  }
  /// The rows of a part, in a column, in which its packs are whole; threads take every lanes-th of them.
  SINTER_HOST_DEVICE uint32_t first_row(uint32_t part) const { return part * part_steps; }
  SINTER_HOST_DEVICE uint32_t end_row(uint32_t part, uint32_t column) const {
    const uint32_t whole = rows + ((column + 1) * static_cast<uint32_t>(pack) <= rest ? 1 : 0);
    const uint32_t end = first_row(part) + part_steps;
    return end < whole ? end : whole;
  }
  /// Elements that a column has behind them, if the tensor's end lies within its pack.
  SINTER_HOST_DEVICE int elements_behind(uint32_t column) const {
    const uint32_t first = column * static_cast<uint32_t>(pack);
    return first < rest && rest - first < static_cast<uint32_t>(pack) ? static_cast<int>(rest - first) : 0;
  }

  // ---- planes

  /// Pack `item` of a channel.
  SINTER_HOST_DEVICE PlanePack plane_pack(uint32_t item, uint32_t channel, int of_pack) const {
    uint32_t place;
    const uint32_t plane = (by_span.divide(item, place) * channels + channel) * inner;
    const uint32_t first = (plane & ~(line - 1)) + place * static_cast<uint32_t>(of_pack);
    const int before = static_cast<int>(plane - first), left = before + static_cast<int>(inner);
    const auto in_pack = [of_pack](int place_in) {
      return place_in < 0 ? 0 : place_in < of_pack ? place_in : of_pack;
    };
    return {first, in_pack(before), in_pack(left)};
  }
  SINTER_HOST_DEVICE uint32_t items() const { return outer * span; }
};

}  // namespace sinter::ops
