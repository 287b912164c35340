// What the optimiser steps with a trust ratio for each parameter (lars_step, lamb_step) share on every
// device: the sums that the ratio is made of.
#pragma once

#include <cmath>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

/// Sums of squares over one parameter: of its elements and of those of the direction that it is to move in.
struct TrustSums {
  double parameter = 0.0;
  double direction = 0.0;

  SINTER_HOST_DEVICE void add(double p, double d) {
    parameter += p * p;
    direction += d * d;
  }
  SINTER_HOST_DEVICE void add(const TrustSums& other) {
    parameter += other.parameter;
    direction += other.direction;
  }
};

/// coefficient * |parameter| / (|direction| + weight_decay * |parameter| + epsilon); 1 if one of the norms is
/// 0.
SINTER_HOST_DEVICE inline double trust_ratio(const TrustSums& sums, double coefficient = 1.0,
                                             double weight_decay = 0.0, double epsilon = 0.0) {
  if (!(sums.parameter > 0.0 && sums.direction > 0.0)) return 1.0;
  const double norm = std::sqrt(sums.parameter);
  return coefficient * norm / (std::sqrt(sums.direction) + weight_decay * norm + epsilon);
}

}  // namespace sinter::ops
