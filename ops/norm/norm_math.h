// The arithmetic of batch normalisation, for every device: forward beside gradient.
#pragma once

#include <cmath>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/norm/activation.h>

namespace sinter::ops {

/// Count, mean and sum of squared deviations of some values.
struct Moments {
  double count = 0.0;
  double mean = 0.0;
  double squares = 0.0;

  /// Takes in the moments of other values (Chan, Golub, LeVeque 1983, equation 2.1).
  SINTER_HOST_DEVICE void merge(const Moments& other) {
    const double both = count + other.count;
    if (both == 0.0) return;
    const double delta = other.mean - mean;
    mean += delta * (other.count / both);
    squares += other.squares + delta * delta * (count * other.count / both);
    count = both;
  }
};

/// Moments from a first estimate of the mean (`pilot`) and the sums of the deviations from it and of their
/// squares. The estimate's own error cancels, and squares is never negative.
SINTER_HOST_DEVICE inline Moments moments_about(double pilot, double count, double deviations,
                                                double squares) {
  const double centred = squares - deviations * (deviations / count);
  return {count, pilot + deviations / count, centred < 0.0 ? 0.0 : centred};
}

/// Where a running statistic moves when `value` comes. A momentum of 0 or 1 leaves one of them out.
SINTER_HOST_DEVICE inline double moved_running(double running, double value, double momentum) {
  return math::mul_no_nan(1.0 - momentum, running) + math::mul_no_nan(momentum, value);
}

/// y = (x - mean) * scale + shift.
template <class C>
struct Normalize {
  C mean, scale, shift;

  SINTER_HOST_DEVICE C operator()(C x) const { return (x - mean) * scale + shift; }
};

/// The parameters of a channel, from statistics in double precision. `mean` is rounded to C, and the shift
/// makes up for it.
template <class C>
SINTER_HOST_DEVICE Normalize<C> make_normalize(double mean, double inv_std, double weight, double bias) {
  const C rounded = static_cast<C>(mean);
  const double scale = inv_std * weight;
  return {rounded, static_cast<C>(scale),
          static_cast<C>(bias - (mean - static_cast<double>(rounded)) * scale)};
}

/// dx = scale * dy + slope * (x - mean) + offset; slope and offset are 0 where the statistics are constants.
template <class C>
struct NormalizeGrad {
  C mean, scale, slope, offset;

  SINTER_HOST_DEVICE C operator()(C x, C dy) const { return scale * dy + (slope * (x - mean) + offset); }
};

/// The gradient's parameters in training, from the sums over the channel's elements of dy and of
/// dy * (x - mean), and from one over their number.
template <class C>
SINTER_HOST_DEVICE NormalizeGrad<C> make_normalize_grad(C mean, double inv_std, double weight,
                                                        double inverse_count, double sum_dy,
                                                        double sum_dy_deviation) {
  const double scale = weight * inv_std, share = scale * inverse_count;
  return {mean, static_cast<C>(scale), static_cast<C>(-inv_std * inv_std * (share * sum_dy_deviation)),
          static_cast<C>(-share * sum_dy)};
}

/// Mean and sum of squared deviations of `count` values from the sums of the values and of their squares.
SINTER_HOST_DEVICE inline Moments moments_of_sums(double count, double sum, double squares) {
  return moments_about(0.0, count, sum, squares);
}

/// The mask's bit: the activation passes x, and the gradient, on unchanged. NaN passes ReLU, and is scaled by
/// PReLU, as alone.
template <fused::Activation activation, class C>
SINTER_HOST_DEVICE bool passes(C x) {
  if constexpr (activation == fused::Activation::kPRelu) {
    return x > C{0};
  } else {
    return !(x <= C{0});
  }
}

}  // namespace sinter::ops
