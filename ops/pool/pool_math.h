// The geometry of pooling windows and the comparison of max pooling, for every device.
#pragma once

#include <array>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

/// One spatial axis: windows of `kernel` elements, `dilation` apart; windows are `stride` apart, and the
/// first one starts `padding` before the image. I: a signed type that holds extent + all padding + 2 * span +
/// stride.
template <class I>
struct BasicPoolAxis {
  I extent = 1, kernel = 1, stride = 1;
  I padding = 0, padding_after = 0;
  I dilation = 1;
  I span = 1;  ///< from a window's first element to its last, both included
  I out = 1;

  struct Range {
    I begin, end;
  };
  /// Where window `o` starts; may lie before the image.
  SINTER_HOST_DEVICE I start(I o) const { return o * stride - padding; }
  /// The part of window `o` inside the image, without dilation; never empty.
  SINTER_HOST_DEVICE Range inside(I o) const {
    const I begin = start(o), end = begin + kernel;
    return {begin < 0 ? I{0} : begin, end > extent ? extent : end};
  }
  /// Which of the kernel's elements window `o` has inside the image; empty if end <= begin, which only
  /// dilation makes possible.
  SINTER_HOST_DEVICE Range taps(I o) const {
    const I begin = start(o), before = begin < 0 ? -begin : I{0};
    I first = before, last = extent - begin;
    if (dilation != 1) {  // divisions cost more than a branch
      first = (first + dilation - 1) / dilation;
      last = (last + dilation - 1) / dilation;
    }
    return {first, last > kernel ? kernel : last};
  }
  /// Which of the kernel's elements window `o`, whose span holds element `i`, has there; -1: none.
  SINTER_HOST_DEVICE I tap_at(I o, I i) const {
    const I offset = i - start(o);
    if (dilation == 1) return offset;
    const I tap = offset / dilation;
    return tap * dilation == offset ? tap : I{-1};
  }
  /// What window `o` counts for in an average: its elements in the padded image, or in the image alone.
  SINTER_HOST_DEVICE I count(I o, bool include_pad) const {
    if (!include_pad) return inside(o).end - inside(o).begin;
    const I begin = start(o), end = begin + kernel, padded = extent + padding_after;
    return (end > padded ? padded : end) - begin;
  }
  /// The windows whose span contains element `i`; may be none. `by_stride` divides numbers >= 0 by the
  /// stride.
  template <class Divide>
  SINTER_HOST_DEVICE Range windows(I i, const Divide& by_stride) const {
    const I first = i + padding - span + 1, last = by_stride.divide(i + padding) + 1;
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

/// What the sum of a window is divided by, as a product for its rows and its columns: what it holds, or a
/// number that is given.
struct PoolCounts {
  bool include_pad = true;
  int64_t divisor = 0;  ///< 0: none is given

  template <class I>
  SINTER_HOST_DEVICE I rows(const BasicPoolAxis<I>& y, I o) const {
    return divisor != 0 ? static_cast<I>(divisor) : y.count(o, include_pad);
  }
  template <class I>
  SINTER_HOST_DEVICE I columns(const BasicPoolAxis<I>& x, I o) const {
    return divisor != 0 ? I{1} : x.count(o, include_pad);
  }
};

/// True if max pooling replaces `best` by `x`: the first of equal elements stays, NaN always wins.
template <class C>
SINTER_HOST_DEVICE bool pool_takes(C x, C best) {
  return x > best || x != x;
}

}  // namespace sinter::ops
