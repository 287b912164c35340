// The factor on the gradients of an optimiser's step, which may skip the step.
#pragma once

#include <cmath>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

/// The value behind `factor`, a float32 scalar, or 1 for none. One that is not finite skips the update.
SINTER_HOST_DEVICE inline float gradient_factor_at(const void* factor) {
  return factor != nullptr ? *static_cast<const float*>(factor) : 1.0f;
}
SINTER_HOST_DEVICE inline bool skips_update(float factor) {
  return !(std::fabs(factor) <= 0x1.fffffep127f);  // NaN compares false
}

}  // namespace sinter::ops
