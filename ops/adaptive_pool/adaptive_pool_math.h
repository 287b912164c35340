// Which pixels the windows of adaptive pooling hold, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/base/shape.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>

namespace sinter::ops {

/// One spatial axis: `windows` windows over `pixels` pixels.
struct AdaptiveAxis {
  int64_t pixels = 1, windows = 1;

  struct Range {
    int64_t begin, end;
    SINTER_HOST_DEVICE int64_t count() const { return end - begin; }
  };
  /// The pixels of window o; never empty.
  SINTER_HOST_DEVICE Range pixels_of(int64_t o) const { return share(o, windows, pixels); }
  /// The windows that hold pixel i; never empty. Window o holds it if o * pixels / windows < i + 1 and
  /// (o + 1) * pixels / windows > i, which solved for o is pixels_of with the roles exchanged.
  SINTER_HOST_DEVICE Range windows_of(int64_t i) const { return share(i, pixels, windows); }

 private:
  SINTER_HOST_DEVICE static Range share(int64_t i, int64_t parts, int64_t whole) {
    return {i * whole / parts, ((i + 1) * whole + parts - 1) / parts};
  }
};

/// Extents of a call. NCHW is NHWC with every plane an image of one channel.
struct AdaptivePoolProblem {
  AdaptivePoolProblem(const Shape& x, const Shape& y, Layout layout) {
    const bool first = layout == Layout::kNCHW;
    const int height = first ? 2 : 1;
    images = first ? x[0] * x[1] : x[0];
    depth = first ? 1 : x[3];
    rows = {x[height], y[height]};
    columns = {x[height + 1], y[height + 1]};
  }

  int64_t images, depth;
  AdaptiveAxis rows, columns;
};

}  // namespace sinter::ops
