// The factor and the next scale, for every device.
#pragma once

#include <cmath>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/loss_scale/loss_scale.h>

namespace sinter::ops {

/// Changes `scale` and `counts` unless they are null; gives the factor.
SINTER_HOST_DEVICE inline float next_loss_scale(const LossScaleOptions& options, double norm, float* scale,
                                                int64_t* counts) {
  const double present = scale != nullptr ? static_cast<double>(*scale) : 1.0;
  const bool good = std::fabs(norm) <= 0x1.fffffffffffffp1023;  // NaN compares false
  double factor = NAN;
  if (good) {
    factor = 1.0 / present;
    if (options.max_norm > 0) factor *= std::fmin(1.0, options.max_norm / (norm / present + 1e-6));
  }
  if (scale != nullptr) {
    double next = present;
    counts[0] = good ? counts[0] + 1 : 0;
    counts[1] = good ? 0 : counts[1] + 1;
    counts[2] += good ? 0 : 1;
    if (!good) {
      // A scale that starts below the floor is left there.
      next = std::fmin(present, std::fmax(present * options.backoff, options.min_scale));
    } else if (counts[0] >= options.growth_interval) {
      counts[0] = 0;
      next = present * options.growth;
    }
    if (next <= 0x1.fffffep127) *scale = static_cast<float>(next);
  }
  return static_cast<float>(factor);
}

}  // namespace sinter::ops
