// What the update ops of optimisers (sgd_step, adamw_step) share: the inputs that their slots end with, the
// element types that may meet, and the factor on the gradients.
#pragma once

#include <cmath>
#include <string_view>

#include <sinter/core/base/host_device.h>
#include <sinter/core/op/kernel.h>

namespace sinter::ops {

/// The last inputs of a slot, counted from the end of its arrays (parameter, gradient, the op's buffers).
enum UpdateInput : size_t { kWorkingCopy, kLearningRate, kStepCount, kGradientFactor, kUpdateInputs };

/// Checks parameter, gradient and the last inputs of the slot that begins at input `slot` and has `arrays`
/// arrays. `has_moving`: behind the learning rate stands another number that moves from step to step.
void expect_update_inputs(const InferContext& context, size_t slot, size_t arrays, bool has_moving = false);

/// Calls `function.operator()<T, G>()` with the types of a parameter and of its gradient and working copy: T
/// = G without a working copy, else T = float and G a 16-bit type.
template <class F>
void dispatch_update(DType parameter, DType gradient, std::string_view tag, F&& function) {
  if (parameter == gradient) {
    dispatch_float(parameter, tag, [&]<class T> { function.template operator()<T, T>(); });
  } else if (gradient == DType::kFloat16) {
    function.template operator()<float, float16>();
  } else {
    function.template operator()<float, bfloat16>();
  }
}

/// The value behind `factor`, a float32 scalar, or 1 for none. One that is not finite skips the update.
SINTER_HOST_DEVICE inline float gradient_factor_at(const void* factor) {
  return factor != nullptr ? *static_cast<const float*>(factor) : 1.0f;
}
SINTER_HOST_DEVICE inline bool skips_update(float factor) {
  return !(std::fabs(factor) <= 0x1.fffffep127f);  // NaN compares false
}

}  // namespace sinter::ops
