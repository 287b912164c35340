// Which pixel of an image a window shows, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::ops {

/// The position in [0, extent) that is seen at `at`, any number of 33 bits; -1: nothing is.
SINTER_HOST_DEVICE inline int64_t border_source(int64_t at, int64_t extent, PadMode border) {
  if (at >= 0 && at < extent) return at;
  if (border == PadMode::kConstant || extent == 0) return -1;
  if (border == PadMode::kReplicate) return at < 0 ? 0 : extent - 1;
  const int64_t once = at < 0 ? -at : 2 * (extent - 1) - at;
  if (once >= 0 && once < extent) return once;
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);
  const int64_t folded = (at < 0 ? -at : at) % period;
  return folded < extent ? folded : period - folded;
}

/// The windows of images of `height` x `width` pixels that crop_images gives.
struct CropGeometry {
  int64_t images, height, width, channels;
  int64_t out_height, out_width;
  PadMode border;

  /// The byte of the first channel that is seen at (y, x) of image n's window; -1: black.
  SINTER_HOST_DEVICE int64_t row_start(const int32_t* window, int64_t n, int64_t y) const {
    const int64_t row = border_source(window[0] + y, height, border);
    return row < 0 ? -1 : (n * height + row) * width * channels;
  }
  SINTER_HOST_DEVICE int64_t pixel(const int32_t* window, int64_t row_start, int64_t x) const {
    if (row_start < 0) return -1;
    const int64_t column = border_source(window[1] + (window[2] != 0 ? out_width - 1 - x : x), width, border);
    return column < 0 ? -1 : row_start + column * channels;
  }
};

/// Of images (N, H, W, C).
inline CropGeometry crop_geometry(const Shape& images, const CropImagesAttributes& attributes) {
  return {.images = images[0],
          .height = images[1],
          .width = images[2],
          .channels = images[3],
          .out_height = attributes.output.height,
          .out_width = attributes.output.width,
          .border = attributes.border};
}

}  // namespace sinter::ops
