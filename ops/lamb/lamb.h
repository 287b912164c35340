// The update step of LAMB: Adam's direction with weight decay and a trust ratio for each parameter.
#pragma once

#include <span>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  bool adapts = true;         ///< false: the trust ratio is 1, as norms and biases want it
  bool moving_beta1 = false;  ///< the beta1 of this call stands behind the learning rate

  bool operator==(const LambOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(
        field("beta1", &LambOptions::beta1), field("beta2", &LambOptions::beta2),
        field("epsilon", &LambOptions::epsilon), field("weight_decay", &LambOptions::weight_decay),
        field("adapts", &LambOptions::adapts), field("moving_beta1", &LambOptions::moving_beta1));
  }
};

/// One parameter with its gradient and its two running averages, zeros at the start: same shape,
/// floating-point dtype and device.
struct LambSlot {
  Tensor parameter;
  Tensor gradient;      ///< of the working copy's dtype where there is one
  Tensor exp_avg;       ///< of the gradient
  Tensor exp_avg_sq;    ///< of its square
  Tensor step;          ///< int64 scalar, the number of this update: 1 for the first
  Tensor working = {};  ///< float16 or bfloat16 copy of a float32 parameter, overwritten; may be undefined
};

/// Changes parameters and averages in place, all slots in one call:
///   g = gradient * gradient_factor
///   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
///   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
///   u = exp_avg / (1 - beta1^step) / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + epsilon)
///       + weight_decay * parameter
///   ratio = |parameter| / |u|, where |.| is the Euclidean norm over the whole parameter; 1 if one of the
///   norms
///           is 0, or without `adapts`
///   parameter = parameter - learning_rate * ratio * u
///   working = parameter
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end); norms in double
/// precision, in an order that depends on the shapes alone. The ratio has no bounds, and gradients are not
/// clipped here: some implementations divide them by their common norm first, which nn::clip_grad_norm and
/// nn::ScaledStepOptions::clip do.
///
/// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters; with `moving_beta1` it has
/// the shape (2), and its second element is beta1. `gradient_factor`, if given, is a float32 scalar there; if
/// it is infinite or NaN, nothing is changed. Steps are not changed. Call it under NoGrad. Throws
/// InvalidArgument for mismatched slots or options out of range; on the CPU also for step < 1, unless the
/// update is skipped. No slots: nothing happens. Source: Y. You et al., "Large batch optimization for deep
/// learning: training BERT in 76 minutes", ICLR 2020, algorithm 2.
void lamb_step(std::span<const LambSlot> slots, const Tensor& learning_rate, const LambOptions& options,
               const Tensor& gradient_factor = {});

}  // namespace sinter::ops
