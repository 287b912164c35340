// The update step of AdamW and Adam.
#pragma once

#include <span>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  bool decoupled = true;      ///< AdamW; false: Adam, whose weight decay is added to the gradient
  bool amsgrad = false;       ///< divide by the largest exp_avg_sq so far
  bool maximize = false;      ///< climb: the gradient counts with the opposite sign
  bool moving_beta1 = false;  ///< the beta1 of this call stands behind the learning rate

  bool operator==(const AdamWOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(
        field("beta1", &AdamWOptions::beta1), field("beta2", &AdamWOptions::beta2),
        field("epsilon", &AdamWOptions::epsilon), field("weight_decay", &AdamWOptions::weight_decay),
        field("decoupled", &AdamWOptions::decoupled), field("amsgrad", &AdamWOptions::amsgrad),
        field("maximize", &AdamWOptions::maximize), field("moving_beta1", &AdamWOptions::moving_beta1));
  }
};

/// One parameter with its gradient and its two running averages (zeros at the start): same shape,
/// floating-point dtype and device.
struct AdamWSlot {
  Tensor parameter;
  Tensor gradient;      ///< of the working copy's dtype where there is one
  Tensor exp_avg;       ///< of the gradient
  Tensor exp_avg_sq;    ///< of its square
  Tensor step;          ///< int64 scalar, the number of this update: 1 for the first
  Tensor working = {};  ///< float16 or bfloat16 copy of a float32 parameter, overwritten; may be undefined
  Tensor max_exp_avg_sq = {};  ///< the largest exp_avg_sq, zeros at the start; defined if and only if amsgrad
};

/// Changes parameters and averages in place, all slots in one call, exactly by PyTorch's torch.optim.AdamW:
///   g = gradient * gradient_factor, or the negative of it to maximize
///   parameter = parameter * (1 - learning_rate * weight_decay)     (decoupled; else g += weight_decay *
///                                                                   parameter)
///   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
///   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
///   max_exp_avg_sq = max(max_exp_avg_sq, exp_avg_sq)    (amsgrad; it then takes the place of exp_avg_sq in:)
///   parameter = parameter - learning_rate / (1 - beta1^step) * exp_avg /
///               (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + epsilon)
///   working = parameter
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end).
///
/// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters; with `moving_beta1` it has
/// the shape (2), and its second element is beta1. `gradient_factor`, if given,
/// is a float32 scalar there; if it is infinite or NaN, nothing is changed. Steps are not changed. Call it
/// under NoGrad: parameters that require a gradient cannot be changed while calls are recorded. Throws
/// InvalidArgument for mismatched slots or options out of range; on the CPU also for step < 1, unless the
/// update is skipped. No slots: nothing happens. Source: I. Loshchilov, F. Hutter, "Decoupled weight decay
/// regularization", ICLR 2019; D. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015; S.
/// Reddi, S. Kale, S. Kumar, "On the convergence of Adam and beyond", ICLR 2018 (amsgrad).
void adamw_step(std::span<const AdamWSlot> slots, const Tensor& learning_rate, const AdamWOptions& options,
                const Tensor& gradient_factor = {});

}  // namespace sinter::ops
