// The geometry of pooling windows and the comparison of max pooling, for every device.
#pragma once

#include <array>
#include <cstdint>

#include <sinter/core/runtime/random.h>  // SINTER_HOST_DEVICE

namespace sinter::ops {

/// One spatial axis: windows of `kernel` elements, `stride` apart, the first one starting `padding` before
/// the image. I: a signed type that holds extent + padding + 2 * kernel + stride.
template <class I>
struct BasicPoolAxis {
  I extent, kernel, stride, padding, out;

  struct Range {
    I begin, end;
  };
  /// Where window `o` starts; may lie before the image.
  SINTER_HOST_DEVICE I start(I o) const { return o * stride - padding; }
  /// The part of window `o` inside the image; never empty.
  SINTER_HOST_DEVICE Range inside(I o) const {
    const I begin = start(o), end = begin + kernel;
    return {begin < 0 ? I{0} : begin, end > extent ? extent : end};
  }
  /// What window `o` counts for in an average: its elements in the padded image, or in the image alone.
  SINTER_HOST_DEVICE I count(I o, bool include_pad) const {
    if (!include_pad) return inside(o).end - inside(o).begin;
    const I begin = start(o), end = begin + kernel, padded = extent + padding;
    return (end > padded ? padded : end) - begin;
  }
  /// The windows that contain element `i`; may be none. `by_stride` divides numbers >= 0 by the stride.
  template <class Divide>
  SINTER_HOST_DEVICE Range windows(I i, const Divide& by_stride) const {
    const I first = i + padding - kernel + 1, last = by_stride.divide(i + padding) + 1;
    return {first <= 0 ? I{0} : by_stride.divide(first + stride - 1), last > out ? out : last};
  }
  Range windows(I i) const { return windows(i, Divide{stride}); }

 private:
  struct Divide {
    I divisor;
    I divide(I n) const { return n / divisor; }
  };
};

using PoolAxis = BasicPoolAxis<int64_t>;

/// True if max pooling replaces `best` by `x`: the first of equal elements stays, NaN always wins.
template <class C>
SINTER_HOST_DEVICE bool pool_takes(C x, C best) {
  return x > best || x != x;
}

}  // namespace sinter::ops
