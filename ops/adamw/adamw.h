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
  bool decoupled = true;  ///< AdamW; false: Adam, whose weight decay is added to the gradient

  bool operator==(const AdamWOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("beta1", &AdamWOptions::beta1), field("beta2", &AdamWOptions::beta2),
                      field("epsilon", &AdamWOptions::epsilon),
                      field("weight_decay", &AdamWOptions::weight_decay),
                      field("decoupled", &AdamWOptions::decoupled));
  }
};

/// One parameter with its gradient and its two running averages (zeros at the start): same shape,
/// floating-point dtype and device.
struct AdamWSlot {
  Tensor parameter;
  Tensor gradient;
  Tensor exp_avg;     ///< of the gradient
  Tensor exp_avg_sq;  ///< of its square
};

/// Changes parameters and averages in place, all slots in one call, exactly by PyTorch's torch.optim.AdamW:
///   parameter = parameter * (1 - learning_rate * weight_decay)      (decoupled; else g = gradient +
///   weight_decay * parameter) exp_avg = exp_avg + (1 - beta1) * (g - exp_avg) exp_avg_sq = beta2 *
///   exp_avg_sq + (1 - beta2) * g * g parameter = parameter - learning_rate / (1 - beta1^step) * exp_avg /
///               (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + epsilon)
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end).
/// `learning_rate` is a float64 scalar and `step` an int64 scalar (rank 0), both on the device of the
/// parameters; `step` is the number of this update, 1 for the first, and is not changed. Call it under
/// NoGrad: parameters that require a gradient cannot be changed while calls are recorded. Throws
/// InvalidArgument for mismatched slots or options out of range; on the CPU also for step < 1. No slots:
/// nothing happens. Source: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019; D.
/// Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.
void adamw_step(std::span<const AdamWSlot> slots, const Tensor& learning_rate, const Tensor& step,
                const AdamWOptions& options);

}  // namespace sinter::ops
