// The geometry of pooling windows and the comparison of max pooling, for every device.
#pragma once

#include <array>
#include <cstdint>

#include <sinter/core/runtime/random.h>  // SINTER_HOST_DEVICE

namespace sinter::ops {

/// One spatial axis: windows of `kernel` elements, `stride` apart, the first one starting `padding` before
/// the image.
struct PoolAxis {
  int64_t extent, kernel, stride, padding, out;

  struct Range {
    int64_t begin, end;
  };
  /// Where window `o` starts; may lie before the image.
  SINTER_HOST_DEVICE int64_t start(int64_t o) const { return o * stride - padding; }
  /// The part of window `o` inside the image; never empty.
  SINTER_HOST_DEVICE Range inside(int64_t o) const {
    const int64_t begin = start(o), end = begin + kernel;
    return {begin < 0 ? 0 : begin, end > extent ? extent : end};
  }
  /// What window `o` counts for in an average: its elements in the padded image, or in the image alone.
  SINTER_HOST_DEVICE int64_t count(int64_t o, bool include_pad) const {
    if (!include_pad) return inside(o).end - inside(o).begin;
    const int64_t begin = start(o), end = begin + kernel, padded = extent + padding;
    return (end > padded ? padded : end) - begin;
  }
  /// The windows that contain element `i`; may be none.
  SINTER_HOST_DEVICE Range windows(int64_t i) const {
    const int64_t first = i + padding - kernel + 1, last = (i + padding) / stride + 1;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, last > out ? out : last};
  }
};

/// True if max pooling replaces `best` by `x`: the first of equal elements stays, NaN always wins.
template <class C>
SINTER_HOST_DEVICE bool pool_takes(C x, C best) {
  return x > best || x != x;
}

}  // namespace sinter::ops
