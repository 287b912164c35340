// How a GPU cuts a tensor for PReLU. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

// ---- elementwise: forward, and the gradient of x

/// How the slopes of neighbouring elements lie, which decides how a pack of them is found.
enum class SlopeOrder {
  kRuns,     ///< runs of at least a pack: a pack has one slope, or changes once to the next
  kVectors,  ///< channels side by side, a multiple of a pack: a pack's slopes are an aligned vector
  kMixed     ///< anything else
};

inline SlopeOrder slope_order(const ChannelView& view, int64_t pack) {
  if (view.inner >= pack) return SlopeOrder::kRuns;
  return view.inner == 1 && view.channels % pack == 0 ? SlopeOrder::kVectors : SlopeOrder::kMixed;
}

/// Packs that a thread of the forward kernel takes, for a tensor of `bytes`: measured, docs/kernels/prelu.md.
constexpr int prelu_packs_of_thread(int64_t bytes) {
  return bytes > (int64_t{32} << 20) ? 1 : 2;
}

/// A contiguous piece of a tensor that is itself a tensor with channels.
struct ChannelSlab {
  int64_t first = 0;    ///< its first element
  int64_t channel = 0;  ///< the channel that is its channel 0
  ChannelView view;
};

/// Calls body(slab) for slabs of at most `most` elements that together are the tensor, in order, so that
/// kernels can count with 32 bits. Slabs begin at multiples of `pack` elements (`pack` divides `most`)
/// wherever that is possible without ending inside of a channel's run.
template <class Body>
void for_each_slab(const ChannelView& view, int64_t most, int64_t pack, Body&& body) {
  const int64_t period = view.channels * view.inner;
  // Whole multiples of a pack if there are any, else what fits.
  const auto steps_of = [&](int64_t size) {
    const int64_t fit = most / size;
    return fit >= pack ? fit / pack * pack : fit;
  };
  if (view.numel() == 0) return;
  if (period <= most) {
    const int64_t step = steps_of(period);
    for (int64_t outer = 0; outer < view.outer; outer += step) {
      body(ChannelSlab{outer * period, 0, {std::min(step, view.outer - outer), view.channels, view.inner}});
    }
    return;
  }
  for (int64_t outer = 0; outer < view.outer; ++outer) {
    if (view.inner <= most) {
      const int64_t step = steps_of(view.inner);
      for (int64_t channel = 0; channel < view.channels; channel += step) {
        body(ChannelSlab{outer * period + channel * view.inner,
                         channel,
                         {1, std::min(step, view.channels - channel), view.inner}});
      }
      continue;
    }
    for (int64_t channel = 0; channel < view.channels; ++channel) {
      for (int64_t place = 0; place < view.inner; place += most) {
        body(ChannelSlab{outer * period + channel * view.inner + place,
                         channel,
                         {1, 1, std::min(most, view.inner - place)}});
      }
    }
  }
}

// ---- with sums: the gradients of x and alpha

constexpr int64_t kPReluProcessors = 132;         ///< of a large GPU
constexpr int64_t kPReluProcessorThreads = 1024;  ///< that one holds at once, with 64 registers each

/// Into how many parts the `steps` of each of `tiles` tiles are cut, at least `least`, if `at_once` blocks
/// run at once: as many as take the least time. A block costs some steps of its own. A last wave that is not
/// full goes faster, since its blocks share the memory, but for one so small that it leaves memory idle.
inline int64_t plan_prelu_parts(int64_t tiles, int64_t steps, int64_t at_once, int64_t least) {
  constexpr double kBlockSteps = 2.0, kLeastWave = 0.75;
  constexpr int64_t kMostWaves = 6;
  const auto cost_of = [&](int64_t parts) {
    const auto waves = static_cast<double>(tiles * parts / at_once);
    const auto share = static_cast<double>(tiles * parts % at_once) / static_cast<double>(at_once);
    const auto length = static_cast<double>((steps + parts - 1) / parts);
    return length * (waves + (share > 0 ? std::max(share, kLeastWave) : 0.0)) +
           kBlockSteps * (waves + (share > 0 ? 1.0 : 0.0));
  };
  int64_t best = std::min(least, steps);
  double lowest = cost_of(best);
  const int64_t first_wave = (tiles + at_once - 1) / at_once;
  for (int64_t wave = first_wave; wave < first_wave + kMostWaves; ++wave) {
    const int64_t parts = std::min(at_once * wave / tiles, steps);
    if (parts <= best) continue;
    const double cost = cost_of(parts);
    if (cost < lowest) best = parts, lowest = cost;
  }
  return best;
}

/// The tensor is seen as rows of `columns` packs, a multiple of all channels' elements, so that a column
/// belongs to the same channels in every row: a thread keeps their slopes and sums in registers and walks
/// down. A block has `width` columns side by side, a tile, and `lanes` threads below each other; it takes one
/// of `parts` parts of the rows. Its sums, one for every run of a channel that its columns touch, go to its
/// `slots` places of a table, which a second kernel adds up. A row has `runs` runs; run i belongs to channel
/// i % channels.
struct PReluGradPlan {
  static constexpr int kThreads = 512;  ///< of a block
  static constexpr int kFewLanes = 16;  ///< up to these, blocks have only the threads that they need

  int64_t pack = 1;
  int64_t inner = 1, channels = 1;
  int64_t columns = 0;  ///< packs of a row
  int64_t runs = 0;     ///< of a row
  int64_t rows = 0;     ///< whole ones
  int64_t rest = 0;     ///< elements behind them
  int width = 1, lanes = 1;
  int64_t tiles = 0;      ///< blocks side by side
  int64_t parts = 0;      ///< 0 if the tensor is empty
  int64_t part_rows = 0;  ///< the last part may have fewer
  int64_t slots = 0;

  /// The rows of a part, in a column; threads take every lanes-th of them.
  constexpr int64_t first_row(int64_t part) const { return part * part_rows; }
  constexpr int64_t end_row(int64_t part, int64_t column) const {
    const int64_t end = first_row(part) + part_rows, last = rows_of(column);
    return end < last ? end : last > first_row(part) ? last : first_row(part);
  }
  /// Rows of whole packs that a column has.
  constexpr int64_t rows_of(int64_t column) const { return rows + ((column + 1) * pack <= rest ? 1 : 0); }
  /// Elements that a column has behind those, if the tensor's end lies within the pack.
  constexpr int64_t elements_behind(int64_t column) const {
    const int64_t left = rest - column * pack;
    return left > 0 && left < pack ? left : 0;
  }
  constexpr int64_t tile_elements() const { return width * pack; }
  /// Threads of a block: whole warps.
  constexpr int threads() const { return lanes > kFewLanes ? kThreads : (lanes * width + 31) / 32 * 32; }
  /// Rows with the one that is not whole.
  int64_t all_rows() const { return rows + (rest > 0 ? 1 : 0); }
  int64_t table_size() const { return parts * tiles * slots; }
};

/// The columns of a tile: of those that leave the fewest of the last tile's threads without a column, the
/// most. Tiles are narrow, so that their sums meet in the block and few parts are left for the table, unless
/// there are few rows. Tiles that end where channels do have no channel in common, if such a tile is small
/// enough; others begin at multiples of 128 bytes, or as much of that as the rows do.
inline int64_t plan_prelu_width(const PReluGradPlan& plan) {
  constexpr int64_t kThreads = PReluGradPlan::kThreads, kPacksOfLine = 8;
  const int64_t usual = plan.pack > 1 ? 16 : 64;
  const int64_t most = std::clamp(kThreads / plan.all_rows(), usual, std::max(usual, kThreads / plan.pack));
  if (plan.columns <= most) return plan.columns;
  const int64_t whole = std::lcm(plan.inner, plan.pack) / plan.pack;
  const int64_t unit = whole > 1 && whole <= most ? whole : std::gcd(plan.columns, kPacksOfLine);
  int64_t best = most / unit * unit, fewest = INT64_MAX;
  for (int64_t width = best; width >= unit && 2 * width >= most; width -= unit) {
    const int64_t covered = (plan.columns + width - 1) / width * width;
    if (covered < fewest) best = width, fewest = covered;
    if (fewest - plan.columns <= plan.columns / 8) break;
  }
  return best;
}

/// The columns of a tile where channels lie side by side in rows that are no whole lines of 128 bytes, in
/// place of `narrow` ones: those would share sectors and lines with the tiles beside them in most rows, which
/// are then written in part. So a tile is a row, or the largest even share of one that a block has threads to
/// add up and whose sums are little beside the tensor.
inline int64_t plan_prelu_long_tiles(const PReluGradPlan& plan, int64_t narrow) {
  constexpr int64_t kThreads = PReluGradPlan::kThreads, kPacksOfLine = 8, kPackBytes = 16;
  constexpr int64_t kShare = 16;  // of what x, dy and dx move, the most that goes to the table and back
  if (plan.pack == 1 || plan.inner != 1 || plan.columns % kPacksOfLine == 0) return narrow;
  const int64_t most = kThreads / plan.pack, sum_bytes = std::max<int64_t>(kPackBytes / plan.pack, 4);
  for (int64_t tiles = (plan.columns + most - 1) / most;; ++tiles) {
    const int64_t width = (plan.columns + tiles - 1) / tiles;
    if (width <= narrow || (tiles > 1 && width < 2 * narrow)) return narrow;
    const int64_t sums = kPReluProcessors * kPReluProcessorThreads / (kThreads / width) * plan.pack;
    if (2 * sums * sum_bytes <= 3 * plan.rows * plan.columns * kPackBytes / kShare) return width;
  }
}

/// The plan for packs of `pack` elements (a power of two). It depends on the shape and `pack` alone.
inline PReluGradPlan plan_prelu_grad(const ChannelView& any_view, int64_t pack) {
  constexpr int64_t kLongSum = 512;      // rows of a thread that would cost accuracy
  constexpr int64_t kMostParts = 65535;  // a limit of grids
  constexpr int64_t kManySteps = 8;
  constexpr int64_t kThreads = PReluGradPlan::kThreads;
  // With one channel any cut into rows will do.
  const ChannelView view =
      any_view.channels == 1 ? ChannelView{.outer = any_view.numel(), .channels = 1, .inner = 1} : any_view;
  PReluGradPlan plan{.pack = pack, .inner = view.inner, .channels = view.channels};
  if (view.numel() == 0) return plan;
  const int64_t period = view.channels * view.inner, row = std::lcm(period, pack);
  plan.columns = row / pack;
  plan.runs = row / view.inner;
  plan.rows = view.numel() / row;
  plan.rest = view.numel() % row;
  const int64_t width = plan_prelu_long_tiles(plan, plan_prelu_width(plan));
  plan.width = static_cast<int>(width);
  plan.tiles = (plan.columns + width - 1) / width;
  int64_t lanes = std::clamp<int64_t>(plan.all_rows(), 1, kThreads / width);
  // Where tiles are whole rows, those that the threads take at once end at multiples of 128 bytes, or of 32.
  const int64_t even = 8 / std::gcd<int64_t>(plan.columns, 8);
  if (plan.tiles == 1 && lanes >= 4 * even) lanes -= lanes % even;
  if (plan.tiles == 1 && lanes > 2 && lanes * plan.columns % 2 != 0) --lanes;
  plan.lanes = static_cast<int>(lanes);
  const int64_t steps = (plan.all_rows() + lanes - 1) / lanes;  // of a tile's threads over all rows
  const int64_t at_once = kPReluProcessors * (kPReluProcessorThreads / plan.threads());
  const int64_t parts = std::clamp<int64_t>(
      plan_prelu_parts(plan.tiles, steps, at_once, (steps + kLongSum - 1) / kLongSum), 1, kMostParts);
  // Whole steps of all threads where a part has many, else about as much to each.
  const int64_t unit = steps >= kManySteps * parts ? lanes : even;
  plan.part_rows = ((plan.all_rows() + parts - 1) / parts + unit - 1) / unit * unit;
  plan.parts = (plan.all_rows() + plan.part_rows - 1) / plan.part_rows;
  plan.slots = view.inner == 1 ? plan.tile_elements()
                               : std::min(plan.runs, (plan.tile_elements() - 1) / view.inner + 2);
  return plan;
}

/// How the second kernel adds up the table: `side` channels of a block side by side, `lanes` threads to each;
/// powers of two.
struct PReluGradFold {
  static constexpr unsigned kMostThreads = 1024;
  static constexpr unsigned kMostSide = 32;  ///< neighbours in the table, loaded at once
  static constexpr unsigned kFewSide = 8;    ///< of a sector: where many places make more blocks worth it

  unsigned side = 1, lanes = 1;
};

inline PReluGradFold plan_prelu_grad_fold(const PReluGradPlan& plan) {
  using Fold = PReluGradFold;
  const auto up = [](int64_t count, unsigned most) {
    return std::min(most, std::bit_ceil(static_cast<unsigned>(std::clamp<int64_t>(count, 1, most))));
  };
  unsigned side = up(plan.channels, Fold::kMostSide);
  // Places of a run, at most: its tiles in all parts.
  const int64_t tiles =
      plan.inner == 1 ? 1 : std::min(plan.tiles, (plan.inner - 2) / plan.tile_elements() + 2);
  const int64_t places = plan.parts * tiles;
  while (side > Fold::kFewSide && places > Fold::kMostThreads / side) side /= 2;
  return {side, up(places, Fold::kMostThreads / side)};
}

/// Whole channels to a cluster of blocks, which add them up between themselves: no table, no second kernel.
/// `span` packs of a row are `group_channels` whole channels, as few as that takes; the `cluster` blocks of a
/// group take turns at its packs. With several channels to a group threads have fixed columns.
struct PReluClusterPlan {
  static constexpr int kMostThreads = 1024;  ///< of a block
  static constexpr int kMostCluster = 8;
  static constexpr int kMostChannels = 8;  ///< of a group: as many as a pack has elements

  int64_t pack = 1;
  int64_t inner = 1, channels = 1;
  int64_t columns = 0;  ///< packs of a row
  int64_t rows = 0;
  int64_t groups = 0;  ///< 0: the shape is not for clusters
  int span = 1, group_channels = 1;
  int lanes = 0;  ///< threads below each other; 0: one channel to a group, no fixed columns
  int cluster = 1;
  int threads = 0;  ///< of a block, whole warps
  /// Threads that add up a channel's sums of a block's threads, and how many columns they take at a time.
  int log_members = 0, log_across = 0;
};

/// The columns of a group in which its channel c lies. If it begins within a pack, then it has the second of
/// that column's sums.
struct PReluChannelColumns {
  int low, high;
  bool begins_within;

  constexpr PReluChannelColumns(int c, int inner, int pack)
      : low(c * inner / pack), high(((c + 1) * inner - 1) / pack), begins_within(c * inner % pack != 0) {}
};

/// As plan_prelu_grad; for tensors whose rows (outer) are whole packs and have at least a pack to a channel.
inline PReluClusterPlan plan_prelu_clusters(const ChannelView& view, int64_t pack) {
  constexpr int64_t kBlockThreads = PReluClusterPlan::kMostThreads;
  constexpr int64_t kMostCluster = PReluClusterPlan::kMostCluster;
  constexpr int64_t kProcessors = kPReluProcessors;
  constexpr int64_t kGpuThreads = kProcessors * kBlockThreads;
  constexpr int64_t kPacksOfThread = 4;  // that it has in flight
  constexpr int64_t kLongSum = 2048;     // packs of a thread that would cost accuracy
  // Kernels count with 32 bits, some steps of all blocks' threads beyond the end.
  constexpr int64_t kMostPacks = int64_t{1} << 28;
  const int64_t period = view.channels * view.inner;
  PReluClusterPlan plan{.pack = pack, .inner = view.inner, .channels = view.channels};
  if (view.numel() == 0 || view.inner < pack || period % pack != 0) return plan;
  const int64_t span = std::lcm(view.inner, pack) / pack, group_channels = span * pack / view.inner;
  if (view.channels % group_channels != 0) return plan;
  if (view.numel() / pack > kMostPacks) return plan;
  const bool fixed = group_channels > 1;
  if (fixed && span > kBlockThreads / 4) return plan;
  const int64_t groups = view.channels / group_channels, work = span * view.outer;
  // One wave of blocks, if there are groups enough for that.
  int64_t threads = groups > kProcessors ? kBlockThreads / 2 : kBlockThreads;
  const int64_t cluster = std::clamp<int64_t>(
      static_cast<int64_t>(
          std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(kGpuThreads / (groups * threads), 1)))),
      1,
      std::min(kMostCluster,
               static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((work + threads - 1) / threads)))));
  if (groups * cluster * threads < kGpuThreads / 4 || work > cluster * threads * kLongSum) return plan;
  if (!fixed && groups * threads > kGpuThreads) {  // several waves: no threads without work
    threads = std::min(threads, (work + 32 * kPacksOfThread - 1) / (32 * kPacksOfThread) * 32);
  }
  plan.columns = period / pack;
  plan.rows = view.outer;
  plan.span = static_cast<int>(span);
  plan.group_channels = static_cast<int>(group_channels);
  plan.lanes = fixed ? static_cast<int>(std::min(threads / span, view.outer)) : 0;
  plan.cluster = static_cast<int>(cluster);
  plan.threads = static_cast<int>(fixed ? (plan.lanes * span + 31) / 32 * 32 : threads);
  plan.groups = groups;
  const int64_t wide = (view.inner + pack - 1) / pack + 1;  // columns of a channel, at most
  plan.log_members = 5;
  while (plan.log_members > 0 && group_channels << plan.log_members > plan.threads) --plan.log_members;
  plan.log_across = plan.log_members;
  while (plan.log_across > 0 && int64_t{1} << (plan.log_across - 1) >= wide) --plan.log_across;
  return plan;
}

/// Where a pack lies that a plane has elements of: begins at element `first` of the tensor, and elements
/// [begin, end) of it are the plane's; none if these are equal.
struct PReluPlanePack {
  int64_t first;
  int begin, end;
};

/// Parts of a channel's planes to a block, whatever their alignment: packs are aligned, and the first and the
/// last one of a plane may be shared with its neighbours. Every plane is covered with `span` packs, from the
/// 128 bytes on in which it begins, so that the packs of warps lie in whole lines. A block takes a part of
/// the `items` packs of a channel; the table has a sum for every channel and part.
struct PReluPlanesPlan {
  static constexpr int kMostThreads = 512;  ///< of a block

  int64_t pack = 1, line = 1;  ///< elements of a pack, of 128 bytes: powers of two
  int64_t outer = 1, channels = 1, inner = 1;
  int64_t span = 0;
  int64_t items = 0;
  int64_t parts = 0;  ///< of a channel; 0: the shape is not for this
  int64_t part_items = 0;
  int threads = 0;  ///< of a block, whole warps

  int64_t table_size() const { return parts > 1 ? parts * channels : 0; }
  /// Pack `place` of plane `outer_index` of a channel.
  SINTER_HOST_DEVICE PReluPlanePack pack_at(int64_t outer_index, int64_t channel, int64_t place) const {
    const int64_t plane = (outer_index * channels + channel) * inner;
    const int64_t first = (plane & ~(line - 1)) + place * pack;
    const int64_t before = plane - first, left = before + inner;
    return {first,
            static_cast<int>(before < 0      ? 0
                             : before < pack ? before
                                             : pack),
            static_cast<int>(left < 0      ? 0
                             : left < pack ? left
                                           : pack)};
  }
};

/// For planes of some length; `element_bytes` is that of x. It depends on the shape and the sizes alone.
inline PReluPlanesPlan plan_prelu_planes(const ChannelView& view, int64_t pack, int64_t element_bytes) {
  constexpr int64_t kLongPlane = 512, kLeastPlane = 128;  // bytes
  constexpr int64_t kFewPlanes = 64;                      // too few for fixed columns
  constexpr int64_t kLongSum = 2048;                      // packs of a thread that would cost accuracy
  constexpr int64_t kPacksOfThread = 4;                   // that it has in flight
  constexpr int64_t kManySteps = 8;
  constexpr int64_t kMostItems = int64_t{1} << 30;  // kernels count them with 32 bits
  constexpr int64_t kMostThreads = PReluPlanesPlan::kMostThreads;
  PReluPlanesPlan plan{.pack = pack,
                       .line = 128 / element_bytes,
                       .outer = view.outer,
                       .channels = view.channels,
                       .inner = view.inner};
  const int64_t plane_bytes = view.inner * element_bytes;
  if (view.numel() == 0 || plane_bytes < (view.outer < kFewPlanes ? kLeastPlane : kLongPlane)) return plan;
  const int64_t farthest = plan.line - std::gcd(view.inner, plan.line);  // where in a line a plane may begin
  plan.span = (view.inner + farthest + plan.line - 1) / plan.line * (plan.line / pack);
  plan.items = view.outer * plan.span;
  if (plan.items > kMostItems) return plan;
  const bool many = view.channels > 2 * kPReluProcessors;
  const int64_t busy = many ? (plan.items + kPacksOfThread - 1) / kPacksOfThread : plan.items;
  const int64_t threads = std::min(kMostThreads, (busy + 31) / 32 * 32);
  plan.threads = static_cast<int>(threads);
  const int64_t at_once = kPReluProcessors * std::min<int64_t>(kPReluProcessorThreads / threads, 32);
  const int64_t steps = (plan.items + threads - 1) / threads;
  const int64_t parts = plan_prelu_parts(view.channels, steps, at_once, (steps + kLongSum - 1) / kLongSum);
  // Whole steps of all threads where a part has many, else about as much to each.
  const int64_t unit = steps >= kManySteps * parts ? threads : 32;
  plan.part_items = ((plan.items + parts - 1) / parts + unit - 1) / unit * unit;
  const int64_t used = (plan.items + plan.part_items - 1) / plan.part_items;
  if (used * view.channels > INT32_MAX) return plan;
  plan.parts = used;
  return plan;
}

}  // namespace sinter::ops
