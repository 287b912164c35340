// An axis of adaptive average pooling for the kernels of axis_taps.h: the windows are the coarse side.
#pragma once

#include <sinter/ops/adaptive_pool/adaptive_pool_math.h>
#include <sinter/ops/common/axis_taps.h>

namespace sinter::ops {

/// Sides are at most kLongestTapSide, and there are no more windows than pixels.
class AdaptiveTaps {
 public:
  static constexpr bool kEven = true, kSingle = false;

  /// With more windows than pixels a pixel is in many windows.
  static bool can_describe(const AdaptiveAxis& axis) {
    return axis.windows <= axis.pixels && axis.pixels <= kLongestTapSide && axis.windows >= 1;
  }
  explicit AdaptiveTaps(const AdaptiveAxis& axis)
      : pixels_(static_cast<int>(axis.pixels)),
        windows_(static_cast<int>(axis.windows)),
        by_pixels_(static_cast<uint32_t>(axis.pixels)),
        by_windows_(static_cast<uint32_t>(axis.windows)) {}

  template <class C>
  SINTER_HOST_DEVICE AxisTap<C> tap(int pixel) const {
    const int first = divide(by_pixels_, pixel * windows_);
    const int end = divide(by_pixels_, (pixel + 1) * windows_ + pixels_ - 1);
    return {first, weight<C>(first), end - first > 1 ? weight<C>(first + 1) : C{0}};
  }
  SINTER_HOST_DEVICE TapSpan span(int window) const {
    return {divide(by_windows_, window * pixels_),
            divide(by_windows_, (window + 1) * pixels_ + windows_ - 1)};
  }
  template <class C>
  SINTER_HOST_DEVICE C weight(int window) const {
    const TapSpan pixels = span(window);
    return C{1} / static_cast<C>(pixels.end - pixels.begin);
  }

 private:
  SINTER_HOST_DEVICE static int divide(const cuda::FastDivide& by, int n) {
    return static_cast<int>(by.divide(static_cast<uint32_t>(n)));
  }

  int pixels_, windows_;
  cuda::FastDivide by_pixels_, by_windows_;
};

}  // namespace sinter::ops
