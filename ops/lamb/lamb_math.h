// One element of a LAMB step, for every device.
#pragma once

#include <cmath>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/lamb/lamb.h>
#include <sinter/ops/trust_ratio/trust_sums.h>

namespace sinter::ops {

/// C: the compute type. What is the same for all elements is worked out in double precision.
template <class C>
struct LambElement {
  /// `rates`: the learning rate and, if it moves, beta1.
  SINTER_HOST_DEVICE LambElement(const LambOptions& options, const double* rates, double step)
      : LambElement(options, options.moving_beta1 ? rates[1] : options.beta1, step) {}
  SINTER_HOST_DEVICE LambElement(const LambOptions& options, double beta1, double step)
      : beta2(static_cast<C>(options.beta2)),
        share1(static_cast<C>(1.0 - beta1)),
        share2(static_cast<C>(1.0 - options.beta2)),
        correction1(static_cast<C>(1.0 - std::pow(beta1, step))),
        correction2(static_cast<C>(std::sqrt(1.0 - std::pow(options.beta2, step)))),
        epsilon(static_cast<C>(options.epsilon)),
        weight_decay(static_cast<C>(options.weight_decay)),
        decays(options.weight_decay != 0) {}

  /// The direction; changes the averages.
  SINTER_HOST_DEVICE C direction(C parameter, C gradient, C& exp_avg, C& exp_avg_sq) const {
    exp_avg += share1 * (gradient - exp_avg);
    exp_avg_sq = beta2 * exp_avg_sq + share2 * gradient * gradient;
    const C adam = exp_avg / correction1 / (std::sqrt(exp_avg_sq) / correction2 + epsilon);
    return decays ? adam + weight_decay * parameter : adam;
  }

  C beta2, share1, share2, correction1, correction2, epsilon, weight_decay;
  bool decays;
};

/// What the direction is multiplied with: the learning rate times the trust ratio.
SINTER_HOST_DEVICE inline double lamb_rate(const LambOptions& options, const double* rates,
                                           const TrustSums& sums) {
  return rates[0] * (options.adapts ? trust_ratio(sums) : 1.0);
}

}  // namespace sinter::ops
