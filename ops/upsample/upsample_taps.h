// An axis of upsample for the kernels of axis_taps.h: the small image is the coarse side.
#pragma once

#include <sinter/ops/common/axis_taps.h>
#include <sinter/ops/upsample/upsample_math.h>

namespace sinter::ops {

/// Fine pixel o stands for position (o * step + shift) / parts of the coarse side, or 0 if that is below it.
/// Sides are at most kLongestTapSide.
template <bool nearest>
class UpsampleTaps {
 public:
  static constexpr bool kEven = nearest, kSingle = nearest;

  explicit UpsampleTaps(const UpsampleAxis& axis)
      : input_(static_cast<int>(axis.input)), output_(static_cast<int>(axis.output)) {
    if (nearest) {
      step_ = input_;
      parts_ = output_;
    } else if (!axis.align_corners) {
      step_ = 2 * input_;
      shift_ = input_ - output_;
      parts_ = 2 * output_;
    } else if (output_ > 1) {
      step_ = input_ - 1;
      parts_ = output_ - 1;
    }
    by_parts_ = cuda::FastDivide(static_cast<uint32_t>(parts_));
    if (step_ > 0) by_step_ = cuda::FastDivide(static_cast<uint32_t>(step_));
  }

  template <class C>
  SINTER_HOST_DEVICE AxisTap<C> tap(int o) const {
    const int position = o * step_ + shift_;
    uint32_t rest = 0;
    const int first =
        static_cast<int>(by_parts_.divide(position < 0 ? 0u : static_cast<uint32_t>(position), rest));
    if (nearest || rest == 0 || first + 1 >= input_) return {first, C{1}, C{0}};
    const C share = static_cast<C>(rest) / static_cast<C>(parts_);
    return {first, C{1} - share, share};
  }
  SINTER_HOST_DEVICE TapSpan span(int i) const { return {begin_of(nearest ? i : i - 1), begin_of(i + 1)}; }
  template <class C>
  SINTER_HOST_DEVICE C weight(int) const {
    return C{1};
  }
  /// The least o whose first is i or more, or `output`.
  SINTER_HOST_DEVICE int begin_of(int i) const {
    if (i <= 0) return 0;
    if (i >= input_ || step_ == 0) return output_;
    const int position = i * parts_ - shift_;  // of o * step
    if (position <= 0) return 0;
    const int o = static_cast<int>(by_step_.divide(static_cast<uint32_t>(position + step_ - 1)));
    return o < output_ ? o : output_;
  }

 private:
  int input_, output_;
  int step_ = 0, shift_ = 0, parts_ = 1;
  cuda::FastDivide by_parts_{1}, by_step_{1};
};

}  // namespace sinter::ops
