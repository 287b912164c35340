// One element of an RMSprop step, for every device.
#pragma once

#include <cmath>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/rmsprop/rmsprop.h>

namespace sinter::ops {

/// C: the compute type.
template <class C>
struct RmsPropElement {
  SINTER_HOST_DEVICE RmsPropElement(const RmsPropOptions& options, double rate)
      : learning_rate(static_cast<C>(rate)),
        alpha(static_cast<C>(options.alpha)),
        share(static_cast<C>(1.0 - options.alpha)),
        epsilon(static_cast<C>(options.epsilon)),
        momentum(static_cast<C>(options.momentum)),
        weight_decay(static_cast<C>(options.weight_decay)),
        decays(options.weight_decay != 0),
        maximizes(options.maximize) {}

  /// The new parameter; changes the averages. `mean` and `buffer` may be null.
  SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C& square, C* mean, C* buffer) const {
    if (maximizes) gradient = -gradient;
    if (decays) gradient += weight_decay * parameter;
    square = alpha * square + share * gradient * gradient;
    C spread = square;
    if (mean != nullptr) {
      *mean += share * (gradient - *mean);
      spread -= *mean * *mean;
    }
    C step = gradient / (std::sqrt(spread) + epsilon);
    if (buffer != nullptr) {
      *buffer = momentum * *buffer + step;
      step = *buffer;
    }
    return parameter - learning_rate * step;
  }

  C learning_rate, alpha, share, epsilon, momentum, weight_decay;
  bool decays, maximizes;
};

}  // namespace sinter::ops
