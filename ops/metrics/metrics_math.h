// The order of logits and the running mean, for every device.
#pragma once

#include <cmath>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/metrics/metrics.h>

namespace sinter::ops {

/// Whether the logit x of class c comes before the logit y of class `target` in descending order.
template <class C>
SINTER_HOST_DEVICE bool comes_before(C x, int64_t c, C y, int64_t target) {
  const bool x_is_nan = x != x, y_is_nan = y != y;
  if (x_is_nan || y_is_nan) return x_is_nan && (!y_is_nan || c < target);
  return x > y || (x == y && c < target);
}

SINTER_HOST_DEVICE inline void add_to_totals(double* totals, double value, double weight) {
  totals[kValues] += 1.0;
  if (std::fabs(value) <= 0x1.fffffffffffffp1023) {  // NaN compares false
    totals[kWeightedSum] += value * weight;
    totals[kWeight] += weight;
  } else if (totals[kFirstNotFinite] == 0.0) {
    totals[kFirstNotFinite] = totals[kValues];
  }
}

}  // namespace sinter::ops
