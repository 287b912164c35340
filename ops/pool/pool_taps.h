// An axis of average pooling for the kernels of axis_taps.h: the windows are the coarse side.
#pragma once

#include <sinter/ops/common/axis_taps.h>
#include <sinter/ops/pool/pool_math.h>

namespace sinter::ops {

/// Windows without dilation, each pixel in at most two of them. Sides are at most kLongestTapSide.
class PoolTaps {
 public:
  static constexpr bool kEven = true, kSingle = false;

  static bool can_describe(const PoolAxis& axis) {
    return axis.dilation == 1 && axis.kernel <= 2 * axis.stride && axis.extent <= kLongestTapSide &&
           axis.out <= kLongestTapSide && axis.stride <= kLongestTapSide &&
           axis.padding + axis.padding_after <= kLongestTapSide;
  }
  /// A window weighs 1 / divisor, or with a divisor of 0 as what it counts for (BasicPoolAxis::count).
  PoolTaps(const PoolAxis& axis, bool include_pad, double divisor)
      : axis_{.extent = narrow(axis.extent),
              .kernel = narrow(axis.kernel),
              .stride = narrow(axis.stride),
              .padding = narrow(axis.padding),
              .padding_after = narrow(axis.padding_after),
              .dilation = 1,
              .span = narrow(axis.span),
              .out = narrow(axis.out)},
        by_stride_(static_cast<uint32_t>(axis.stride)),
        include_pad_(include_pad),
        fixed_(divisor == 0.0 ? 0.0 : 1.0 / divisor) {}

  template <class C>
  SINTER_HOST_DEVICE AxisTap<C> tap(int pixel) const {
    const auto windows = axis_.windows(pixel, SignedDivide{by_stride_});
    // Behind the last window, and between windows that leave gaps, there is none.
    const int first = windows.begin < axis_.out ? windows.begin : axis_.out - 1;
    const int count = windows.end - windows.begin;
    return {first, count > 0 ? weight<C>(first) : C{0}, count > 1 ? weight<C>(first + 1) : C{0}};
  }
  SINTER_HOST_DEVICE TapSpan span(int window) const {
    const auto inside = axis_.inside(window);
    return {inside.begin, inside.end};
  }
  template <class C>
  SINTER_HOST_DEVICE C weight(int window) const {
    if (fixed_ != 0.0) return static_cast<C>(fixed_);
    return C{1} / static_cast<C>(axis_.count(window, include_pad_));
  }

 private:
  struct SignedDivide {
    const cuda::FastDivide& by;
    SINTER_HOST_DEVICE int divide(int n) const {
      return static_cast<int>(by.divide(static_cast<uint32_t>(n)));
    }
  };
  static int narrow(int64_t value) { return static_cast<int>(value); }

  BasicPoolAxis<int> axis_;
  cuda::FastDivide by_stride_;
  bool include_pad_;
  double fixed_;
};

}  // namespace sinter::ops
