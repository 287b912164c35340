// A tensor as seen by ops that have one set of parameters, or one sum, per channel.
#pragma once

#include <cstdint>

#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// A tensor as (outer, channels, inner): element i belongs to channel i / inner % channels.
struct ChannelView {
  int64_t outer = 1, channels = 1, inner = 1;

  int64_t numel() const { return outer * channels * inner; }
  /// Elements of one channel.
  int64_t per_channel() const { return outer * inner; }
};

inline ChannelView channel_view(const Shape& shape, int axis) {
  return {shape.count(0, axis), shape[axis], shape.count(axis + 1, shape.rank())};
}

}  // namespace sinter::ops
