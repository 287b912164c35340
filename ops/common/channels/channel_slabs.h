// Tensors with channels cut into slabs that kernels can count with 32 bits. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

/// The most elements of a slab: some times as many do not overflow.
inline constexpr int64_t kMostSlabElements = int64_t{1} << 29;

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

/// Several matrices (outer, channels) or, if `groups` is 1, any tensor with channels; each channel of each
/// group has an out of its own.
struct ChannelGroups {
  int64_t groups = 1;
  ChannelView view;

  int64_t outs() const { return groups * view.channels; }
  int64_t numel() const { return groups * view.numel(); }
  /// The same outs in the form that has the longest runs.
  ChannelGroups simplified() const {
    if (view.channels == 1) return {1, {1, groups, view.per_channel()}};
    if (view.outer == 1) return {1, {1, groups * view.channels, view.inner}};
    return *this;
  }
};

/// A contiguous piece of such a tensor.
struct GroupSlab {
  int64_t first = 0;    ///< its first element
  int64_t channel = 0;  ///< the channel that is its channel 0
  int64_t out = 0;      ///< the out that is its first
  ChannelGroups shape;
};

/// As for_each_slab: slabs are several groups, or pieces of one.
template <class Body>
void for_each_group_slab(const ChannelGroups& shape, int64_t most, int64_t pack, Body&& body) {
  const int64_t size = shape.view.numel(), step = std::max<int64_t>(most / std::max<int64_t>(size, 1), 1);
  if (shape.groups > 1 && size > 0 && size <= most) {
    for (int64_t group = 0; group < shape.groups; group += step) {
      body(GroupSlab{
          group * size, 0, group * shape.view.channels, {std::min(step, shape.groups - group), shape.view}});
    }
    return;
  }
  for (int64_t group = 0; group < shape.groups; ++group) {
    for_each_slab(shape.view, most, pack, [&](const ChannelSlab& slab) {
      body(GroupSlab{group * size + slab.first,
                     slab.channel,
                     group * shape.view.channels + slab.channel,
                     {1, slab.view}});
    });
  }
}

}  // namespace sinter::ops
