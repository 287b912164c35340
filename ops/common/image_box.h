// Boxes in images of either layout, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/base/layout.h>
#include <sinter/core/base/shape.h>

namespace sinter::ops {

/// Rows [top, top + height) and columns [left, left + width) of an image, in pixels.
struct ImageBox {
  int64_t top = 0, left = 0, height = 0, width = 0;

  SINTER_HOST_DEVICE bool holds(int64_t y, int64_t x) const {
    return y >= top && x >= left && y - top < height && x - left < width;
  }
};

/// Where the elements of images (N, C, H, W) or (N, H, W, C) are.
struct ImageAxes {
  int64_t images = 0, channels = 0, height = 0, width = 0;
  bool channels_last = false;

  int64_t elements() const { return channels * height * width; }
  /// Of rows that lie together: pixels of all channels, or of one.
  int64_t rows() const { return channels_last ? height : channels * height; }
};

inline ImageAxes image_axes(const Shape& shape, Layout layout) {
  const bool last = layout == Layout::kNHWC;
  return {.images = shape[0],
          .channels = shape[last ? 3 : 1],
          .height = shape[last ? 1 : 2],
          .width = shape[last ? 2 : 3],
          .channels_last = last};
}

}  // namespace sinter::ops
