// Where the elements of a pack lie in their image, and which of them a box holds. For .cu files.
#pragma once

#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/common/image_box.h>

namespace sinter::ops {

/// Divides once for a pack and then counts on.
struct ImagePlaces {
  explicit ImagePlaces(const ImageAxes& axes)
      : channels_last(axes.channels_last),
        channels(axes.channels),
        width(axes.width),
        height(axes.height),
        by_channels(axes.channels),
        by_width(axes.width),
        by_height(axes.height) {}

  struct Place {
    int64_t y, x, c;
  };
  /// Of element `at` of an image.
  __device__ Place place_of(int64_t at) const {
    Place place{0, 0, 0};
    const int64_t pixel = channels_last ? by_channels.divide(at, place.c) : at;
    const int64_t plane = by_height.divide(by_width.divide(pixel, place.x), place.y);
    if (!channels_last) place.c = plane;
    return place;
  }
  /// To the next element.
  __device__ void advance(Place& place) const {
    if (channels_last) {
      if (++place.c < channels) return;
      place.c = 0;
    }
    if (++place.x < width) return;
    place.x = 0;
    if (++place.y < height) return;
    place.y = 0;
    if (!channels_last) ++place.c;
  }
  /// A bit for each of `count` elements from `place` on that `box` holds.
  template <int count>
  __device__ unsigned held(Place place, const ImageBox& box) const {
    constexpr unsigned full = (1u << count) - 1;
    // The usual packs lie in one pixel, or in one row.
    if (channels_last && place.c + count <= channels) return box.holds(place.y, place.x) ? full : 0u;
    const bool in_row = !channels_last && place.x + count <= width;
    if (in_row && (place.y < box.top || place.y - box.top >= box.height)) return 0u;
    unsigned result = 0;
#pragma unroll
    for (int lane = 0; lane < count; ++lane) {
      if (box.holds(place.y, place.x)) result |= 1u << lane;
      advance(place);
    }
    return result;
  }

  bool channels_last;
  int64_t channels, width, height;
  cuda::WideDivide by_channels, by_width, by_height;
};

}  // namespace sinter::ops
