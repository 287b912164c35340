// How a GPU cuts a tensor for PReLU. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

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

/// The tensor is seen as rows of `columns` packs, a multiple of all channels' elements, so that a column
/// belongs to the same channels in every row: a thread keeps their slopes and sums in registers and walks
/// down. A block has `width` columns side by side and `lanes` threads below each other; it takes every
/// lanes-th row of one of `parts` parts. Its sums, one for every run of a channel that its columns touch, go
/// to its `slots` places of a table. A row has `runs` runs; run i belongs to channel i % channels.
struct PReluGradPlan {
  int64_t pack = 1;
  int64_t inner = 1, channels = 1;
  int64_t columns = 0;  ///< packs of a row
  int64_t runs = 0;     ///< of a row
  int64_t rows = 0;     ///< whole ones
  int64_t rest = 0;     ///< elements behind them
  int width = 1, lanes = 1;
  int64_t tiles = 0;      ///< blocks side by side
  int64_t part_rows = 0;  ///< rows of a part, the last of which may have fewer
  int64_t parts = 0;      ///< 0 if the tensor is empty
  int64_t slots = 0;

  /// Rows of whole packs that a column has.
  constexpr int64_t rows_of(int64_t column) const { return rows + ((column + 1) * pack <= rest ? 1 : 0); }
  /// Elements that a column has behind those, if the tensor's end lies within the pack.
  constexpr int64_t elements_behind(int64_t column) const {
    const int64_t left = rest - column * pack;
    return left > 0 && left < pack ? left : 0;
  }
  /// Rows with the one that is not whole.
  int64_t all_rows() const { return rows + (rest > 0 ? 1 : 0); }
  constexpr int64_t tile_elements() const { return width * pack; }
  int64_t table_size() const { return parts * tiles * slots; }
  /// Threads of a block: its shuffles need whole warps.
  int threads() const { return (width * lanes + 31) / 32 * 32; }
};

/// The plan for packs of `pack` elements (a power of two). It depends on the shape and `pack` alone.
inline PReluGradPlan plan_prelu_grad(const ChannelView& any_view, int64_t pack) {
  constexpr int64_t kThreads = 256;      // of a block, at most
  constexpr int64_t kBlocks = 132 * 8;   // that a large GPU runs at once
  constexpr int64_t kLeastRows = 4;      // that a thread should have to itself
  constexpr int64_t kMostParts = 65535;  // a limit of grids
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
  // Tiles that end where channels do have no channel in common, if such a tile is small enough.
  const int64_t whole = std::lcm(view.inner, pack) / pack;
  int64_t width = std::min(plan.columns, kThreads);
  if (whole <= width) width -= width % whole;
  plan.width = static_cast<int>(width);
  plan.tiles = (plan.columns + width - 1) / width;
  const int64_t most_lanes = std::clamp<int64_t>(plan.all_rows() / kLeastRows, 1, kThreads / width);
  plan.lanes = static_cast<int>(most_lanes);
  const int64_t wanted = std::max<int64_t>(kBlocks / plan.tiles, 1);
  const int64_t most_parts = std::max<int64_t>(plan.all_rows() / (plan.lanes * kLeastRows), 1);
  const int64_t parts = std::min({wanted, most_parts, kMostParts});
  plan.part_rows = (plan.all_rows() + parts - 1) / parts;
  plan.parts = (plan.all_rows() + plan.part_rows - 1) / plan.part_rows;
  plan.slots = std::min(plan.runs, (plan.tile_elements() - 1) / view.inner + 2);
  return plan;
}

}  // namespace sinter::ops
