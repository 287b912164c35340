// The update step of LARS: SGD with momentum and a trust ratio for each parameter.
#pragma once

#include <span>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 0.0;
  double trust_coefficient = 0.001;
  double epsilon = 1e-8;
  bool nesterov = false;
  bool adapts = true;            ///< false: the trust ratio is 1, as norms and biases want it
  bool moving_momentum = false;  ///< the momentum of this call stands behind the learning rate

  bool operator==(const LarsOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(
        field("momentum", &LarsOptions::momentum), field("weight_decay", &LarsOptions::weight_decay),
        field("trust_coefficient", &LarsOptions::trust_coefficient), field("epsilon", &LarsOptions::epsilon),
        field("nesterov", &LarsOptions::nesterov), field("adapts", &LarsOptions::adapts),
        field("moving_momentum", &LarsOptions::moving_momentum));
  }
};

/// One parameter with its gradient and its momentum buffer, zeros at the start: same shape, floating-point
/// dtype and device.
struct LarsSlot {
  Tensor parameter;
  Tensor gradient;  ///< of the working copy's dtype where there is one
  Tensor momentum;
  Tensor working = {};  ///< float16 or bfloat16 copy of a float32 parameter, overwritten; may be undefined
};

/// Changes parameters and momentum buffers in place, all slots in one call:
///   g = gradient * gradient_factor
///   ratio = trust_coefficient * |parameter| / (|g| + weight_decay * |parameter| + epsilon), where |.| is the
///           Euclidean norm over the whole parameter; 1 if |parameter| or |g| is 0, or without `adapts`
///   g = ratio * (g + weight_decay * parameter)
///   momentum = options.momentum * momentum + g
///   g = nesterov ? g + options.momentum * momentum : momentum
///   parameter = parameter - learning_rate * g
///   working = parameter
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end); norms in double
/// precision, in an order that depends on the shapes alone. The learning rate stands outside the momentum, as
/// in torch.optim.SGD; in the paper's equations it stands inside.
///
/// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters; with `moving_momentum` it
/// has the shape (2), and its second element is the momentum. `gradient_factor`, if given, is a float32
/// scalar there; if it is infinite or NaN, nothing is changed. Call it under NoGrad. Throws InvalidArgument
/// for mismatched slots or options out of range. No slots: nothing happens. Source: Y. You, I. Gitman, B.
/// Ginsburg, "Large batch training of convolutional networks", 2017.
void lars_step(std::span<const LarsSlot> slots, const Tensor& learning_rate, const LarsOptions& options,
               const Tensor& gradient_factor = {});

}  // namespace sinter::ops
