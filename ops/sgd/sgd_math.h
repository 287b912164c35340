// One element of an SGD step, for every device.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/ops/sgd/sgd.h>

namespace sinter::ops {

/// C: the compute type. Each part that the options leave out is skipped, so that 0 * infinity cannot make a
/// NaN.
template <class C>
struct SgdElement {
  /// `rates`: the learning rate and, if it moves, the momentum.
  SINTER_HOST_DEVICE SgdElement(const SgdOptions& options, const double* rates, bool is_first)
      : learning_rate(static_cast<C>(rates[0])),
        momentum(static_cast<C>(options.moving_momentum ? rates[1] : options.momentum)),
        gradient_share(static_cast<C>(1.0 - options.dampening)),
        weight_decay(static_cast<C>(options.weight_decay)),
        decays(options.weight_decay != 0),
        nesterov(options.nesterov),
        maximizes(options.maximize),
        first_step(is_first) {}

  SINTER_HOST_DEVICE C decayed(C parameter, C gradient) const {
    const C descent = maximizes ? -gradient : gradient;
    return decays ? descent + weight_decay * parameter : descent;
  }
  /// The new parameter without momentum.
  SINTER_HOST_DEVICE C plain(C parameter, C gradient) const {
    return parameter - learning_rate * decayed(parameter, gradient);
  }
  /// The new parameter with momentum; changes `buffer`.
  SINTER_HOST_DEVICE C with_momentum(C parameter, C gradient, C& buffer) const {
    const C g = decayed(parameter, gradient);
    buffer = first_step ? g : momentum * buffer + gradient_share * g;
    return parameter - learning_rate * (nesterov ? g + momentum * buffer : buffer);
  }

  C learning_rate, momentum, gradient_share, weight_decay;
  bool decays, nesterov, maximizes, first_step;
};

}  // namespace sinter::ops
