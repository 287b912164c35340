// The maths of margins, of one element: C is the compute type.
#pragma once

#include <cmath>
#include <limits>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/margin/margin.h>

namespace sinter::ops {

/// What is added to the angle of a row's own class and taken from its cosine.
template <class C>
struct OwnMargin {
  C angle, shift, cos_angle, sin_angle;
};

template <class C>
struct MarginMath {
  C scale, m1;
  OwnMargin<C> common;  ///< m2 and m3
  C filter;             ///< infinity if there is none
  bool exact, limits;
  C most, cos_least, sin_least;  ///< 1 - epsilon, and those of the least angle, epsilon

  explicit MarginMath(const CombinedMarginOptions& options)
      : scale(static_cast<C>(options.scale)),
        m1(static_cast<C>(options.m1)),
        common{static_cast<C>(options.m2), static_cast<C>(options.m3), static_cast<C>(std::cos(options.m2)),
               static_cast<C>(std::sin(options.m2))},
        filter(options.interclass_filter > 0 ? static_cast<C>(options.interclass_filter)
                                             : std::numeric_limits<C>::infinity()),
        exact(options.gradient == MarginGradient::kExact),
        limits(options.epsilon > 0),
        most(static_cast<C>(1.0 - options.epsilon)),
        cos_least(static_cast<C>(std::cos(options.epsilon))),
        sin_least(static_cast<C>(std::sin(options.epsilon))) {}

  /// The logit of a class that is not the row's own. -0 marks what was filtered, so that the gradient need
  /// not keep the cosines; a logit that is 0 by itself is +0.
  SINTER_HOST_DEVICE C other(C cosine) const {
    const C logit = scale * cosine;
    const C unmarked = logit == C{0} ? C{0} : logit;
    return cosine > filter ? -C{0} : unmarked;
  }
  SINTER_HOST_DEVICE static bool is_filtered(C logit) { return logit == C{0} && std::signbit(logit); }

  /// The logit of the row's own class.
  SINTER_HOST_DEVICE C own(C cosine, const OwnMargin<C>& margin) const {
    const C limited = limit(cosine, most);
    // cos(theta + angle), without the angle.
    C moved = m1 == C{1} ? limited * margin.cos_angle - sine(limited) * margin.sin_angle
                         : std::cos(m1 * std::acos(limited) + margin.angle);
    if (limits && moved_sine(limited, margin) < sin_least) moved = moved > C{0} ? cos_least : -cos_least;
    return scale * (moved - margin.shift);
  }
  /// What multiplies its gradient.
  SINTER_HOST_DEVICE C own_slope(C cosine, const OwnMargin<C>& margin) const {
    if (!exact) return scale;
    const C limited = limit(cosine, C(1.0 - 0x1p-21));
    if (limits && (cosine > most || cosine < -most || moved_sine(limited, margin) < sin_least)) return C{0};
    const C slope = m1 == C{1} ? margin.cos_angle + limited * margin.sin_angle / sine(limited)
                               : m1 * std::sin(m1 * std::acos(limited) + margin.angle) / sine(limited);
    return scale * slope;
  }

 private:
  /// Within +-most; NaN stays NaN.
  SINTER_HOST_DEVICE static C limit(C x, C most) { return x > most ? most : x < -most ? -most : x; }
  /// Of the angle of a cosine; the product keeps the digits that 1 - x * x loses near 1.
  SINTER_HOST_DEVICE static C sine(C x) { return std::sqrt((C{1} - x) * (C{1} + x)); }
  /// Of the moved angle: below that of the least one, the angle is nearer to 0 or pi, or beyond.
  SINTER_HOST_DEVICE C moved_sine(C cosine, const OwnMargin<C>& margin) const {
    return m1 == C{1} ? sine(cosine) * margin.cos_angle + cosine * margin.sin_angle
                      : std::sin(m1 * std::acos(cosine) + margin.angle);
  }
};

/// The margins of rows: those given for each, else the common ones.
template <class C>
struct RowMargins {
  const C* angles;  ///< null: none are given
  const C* shifts;

  SINTER_HOST_DEVICE OwnMargin<C> of(const MarginMath<C>& math, int64_t row) const {
    OwnMargin<C> margin = math.common;
    if (shifts != nullptr) margin.shift = shifts[row];
    if (angles == nullptr) return margin;
    margin.angle = angles[row];
    margin.cos_angle = std::cos(margin.angle);
    margin.sin_angle = std::sin(margin.angle);
    return margin;
  }
};

}  // namespace sinter::ops
