// One element of an AdamW step, for every device.
#pragma once

#include <cmath>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/adamw/adamw.h>

namespace sinter::ops {

/// C: the compute type. What is the same for all elements is worked out in double precision, as PyTorch does.
template <class C>
struct AdamWElement {
  /// `rates`: the learning rate and, if it moves, beta1.
  SINTER_HOST_DEVICE AdamWElement(const AdamWOptions& options, const double* rates, double step)
      : AdamWElement(options, rates[0], options.moving_beta1 ? rates[1] : options.beta1, step) {}
  SINTER_HOST_DEVICE AdamWElement(const AdamWOptions& options, double rate, double beta1, double step)
      : decay(static_cast<C>(options.decoupled ? 1.0 - rate * options.weight_decay : options.weight_decay)),
        beta2(static_cast<C>(options.beta2)),
        share1(static_cast<C>(1.0 - beta1)),
        share2(static_cast<C>(1.0 - options.beta2)),
        step_size(static_cast<C>(rate / (1.0 - std::pow(beta1, step)))),
        correction2(static_cast<C>(std::sqrt(1.0 - std::pow(options.beta2, step)))),
        epsilon(static_cast<C>(options.epsilon)),
        decays(options.weight_decay != 0),
        decoupled(options.decoupled),
        maximizes(options.maximize) {}

  /// The new parameter; changes the averages and, unless it is null, the largest square so far.
  SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C& exp_avg, C& exp_avg_sq, C* largest) const {
    if (maximizes) gradient = -gradient;
    if (decays) {
      gradient = decoupled ? gradient : gradient + decay * parameter;
      parameter = decoupled ? parameter * decay : parameter;
    }
    exp_avg += share1 * (gradient - exp_avg);
    exp_avg_sq = beta2 * exp_avg_sq + share2 * gradient * gradient;
    C square = exp_avg_sq;
    if (largest != nullptr) {
      if (square > *largest || std::isnan(square)) *largest = square;  // NaN stays, as in PyTorch
      square = *largest;
    }
    return parameter - step_size * (exp_avg / (std::sqrt(square) / correction2 + epsilon));
  }

  C decay, beta2, share1, share2, step_size, correction2, epsilon;
  bool decays, decoupled, maximizes;
};

}  // namespace sinter::ops
