// The update step of RMSprop.
#pragma once

#include <span>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct RmsPropOptions {
  double alpha = 0.99;        ///< in [0, 1): the share of the average that a step keeps
  double epsilon = 1e-8;      ///< >= 0
  double momentum = 0.0;      ///< >= 0
  double weight_decay = 0.0;  ///< >= 0
  bool centered = false;      ///< divide by the deviation, the mean gradient taken away
  bool maximize = false;      ///< climb: the gradient counts with the opposite sign

  bool operator==(const RmsPropOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(
        field("alpha", &RmsPropOptions::alpha), field("epsilon", &RmsPropOptions::epsilon),
        field("momentum", &RmsPropOptions::momentum), field("weight_decay", &RmsPropOptions::weight_decay),
        field("centered", &RmsPropOptions::centered), field("maximize", &RmsPropOptions::maximize));
  }
};

/// One parameter with its gradient and its buffers (zeros at the start): same shape, floating-point dtype and
/// device.
struct RmsPropSlot {
  Tensor parameter;
  Tensor gradient;       ///< of the working copy's dtype where there is one
  Tensor square_avg;     ///< the average of the gradient's square
  Tensor grad_avg = {};  ///< the average of the gradient; defined if and only if centered
  Tensor momentum = {};  ///< defined if and only if the momentum is not 0
  Tensor working = {};   ///< float16 or bfloat16 copy of a float32 parameter, overwritten; may be undefined
};

/// Changes parameters and buffers in place, all slots in one call, exactly by PyTorch's torch.optim.RMSprop:
///   g = gradient * gradient_factor, or the negative of it to maximize
///   g = g + weight_decay * parameter
///   square_avg = alpha * square_avg + (1 - alpha) * g * g
///   grad_avg = grad_avg + (1 - alpha) * (g - grad_avg)                                         (centered)
///   d = sqrt(square_avg), or sqrt(square_avg - grad_avg^2) when centered, + epsilon
///   momentum_buffer = momentum * momentum_buffer + g / d                                       (momentum)
///   parameter = parameter - learning_rate * (momentum_buffer or g / d)
///   working = parameter
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end).
///
/// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters. `gradient_factor`, if given,
/// is a float32 scalar there; if it is infinite or NaN, nothing is changed. Call it under NoGrad. Throws
/// InvalidArgument for mismatched slots or options out of range. No slots: nothing happens. Source: G.
/// Hinton, "Neural networks for machine learning", lecture 6e, 2012; A. Graves, "Generating sequences with
/// recurrent neural networks", arXiv:1308.0850 (centered).
void rmsprop_step(std::span<const RmsPropSlot> slots, const Tensor& learning_rate,
                  const RmsPropOptions& options, const Tensor& gradient_factor = {});

}  // namespace sinter::ops
