// The maths of margins, of one element: C is the compute type.
#pragma once

#include <cmath>
#include <limits>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/margin/margin.h>

namespace sinter::ops {

template <class C>
struct MarginMath {
  C scale, m1, m2, m3, cos_m2, sin_m2;
  C filter;  ///< infinity if there is none
  bool exact;

  explicit MarginMath(const CombinedMarginOptions& options)
      : scale(static_cast<C>(options.scale)),
        m1(static_cast<C>(options.m1)),
        m2(static_cast<C>(options.m2)),
        m3(static_cast<C>(options.m3)),
        cos_m2(static_cast<C>(std::cos(options.m2))),
        sin_m2(static_cast<C>(std::sin(options.m2))),
        filter(options.interclass_filter > 0 ? static_cast<C>(options.interclass_filter)
                                             : std::numeric_limits<C>::infinity()),
        exact(options.gradient == MarginGradient::kExact) {}

  /// The logit of a class that is not the row's own. -0 marks what was filtered, so that the gradient need
  /// not keep the cosines; a logit that is 0 by itself is +0.
  SINTER_HOST_DEVICE C other(C cosine) const {
    const C logit = scale * cosine;
    const C unmarked = logit == C{0} ? C{0} : logit;
    return cosine > filter ? -C{0} : unmarked;
  }
  SINTER_HOST_DEVICE static bool is_filtered(C logit) { return logit == C{0} && std::signbit(logit); }

  /// The logit of the row's own class.
  SINTER_HOST_DEVICE C own(C cosine) const {
    const C limited = limit(cosine, C{1});
    // cos(theta + m2), without the angle.
    const C moved =
        m1 == C{1} ? limited * cos_m2 - sine(limited) * sin_m2 : std::cos(m1 * std::acos(limited) + m2);
    return scale * (moved - m3);
  }
  /// What multiplies its gradient.
  SINTER_HOST_DEVICE C own_slope(C cosine) const {
    if (!exact) return scale;
    const C limited = limit(cosine, C(1.0 - 0x1p-21));
    const C slope = m1 == C{1} ? cos_m2 + limited * sin_m2 / sine(limited)
                               : m1 * std::sin(m1 * std::acos(limited) + m2) / sine(limited);
    return scale * slope;
  }

 private:
  /// Within +-most; NaN stays NaN.
  SINTER_HOST_DEVICE static C limit(C x, C most) { return x > most ? most : x < -most ? -most : x; }
  /// Of the angle of a cosine; the product keeps the digits that 1 - x * x loses near 1.
  SINTER_HOST_DEVICE static C sine(C x) { return std::sqrt((C{1} - x) * (C{1} + x)); }
};

}  // namespace sinter::ops
