// One element of a LARS step, for every device.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/ops/lars/lars.h>
#include <sinter/ops/trust_ratio/trust_sums.h>

namespace sinter::ops {

/// C: the compute type.
template <class C>
struct LarsElement {
  /// `rates`: the learning rate and, if it moves, the momentum. `sums`: of the parameter and the gradient.
  SINTER_HOST_DEVICE LarsElement(const LarsOptions& options, const double* rates, const TrustSums& sums)
      : learning_rate(static_cast<C>(rates[0])),
        momentum(static_cast<C>(options.moving_momentum ? rates[1] : options.momentum)),
        weight_decay(static_cast<C>(options.weight_decay)),
        ratio(static_cast<C>(options.adapts ? trust_ratio(sums, options.trust_coefficient,
                                                          options.weight_decay, options.epsilon)
                                            : 1.0)),
        decays(options.weight_decay != 0),
        nesterov(options.nesterov) {}

  /// The new parameter; changes `buffer`.
  SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C& buffer) const {
    const C g = ratio * (decays ? gradient + weight_decay * parameter : gradient);
    buffer = momentum * buffer + g;
    return parameter - learning_rate * (nesterov ? g + momentum * buffer : buffer);
  }

  C learning_rate, momentum, weight_decay, ratio;
  bool decays, nesterov;
};

}  // namespace sinter::ops
