// The update step of stochastic gradient descent with momentum.
#pragma once

#include <span>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct SgdOptions {
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;  ///< needs momentum > 0 and dampening = 0
  bool maximize = false;  ///< climb: the gradient counts with the opposite sign
  bool moving_momentum =
      false;  ///< the momentum of this call stands behind the learning rate; `momentum` > 0

  bool operator==(const SgdOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("momentum", &SgdOptions::momentum), field("dampening", &SgdOptions::dampening),
                      field("weight_decay", &SgdOptions::weight_decay),
                      field("nesterov", &SgdOptions::nesterov), field("maximize", &SgdOptions::maximize),
                      field("moving_momentum", &SgdOptions::moving_momentum));
  }
};

/// One parameter with its gradient and its momentum buffer: same shape, floating-point dtype and device.
struct SgdSlot {
  Tensor parameter;
  Tensor gradient;      ///< of the working copy's dtype where there is one
  Tensor momentum;      ///< undefined if and only if the momentum is 0
  Tensor step = {};     ///< int64 scalar, the number of this update: 1 for the first. May be undefined if the
                        ///< momentum starts as zeros and nothing dampens it
  Tensor working = {};  ///< float16 or bfloat16 copy of a float32 parameter, overwritten; may be undefined
};

/// Changes parameters and momentum buffers in place, all slots in one call, exactly by PyTorch's
/// torch.optim.SGD:
///   g = gradient * gradient_factor, or the negative of it to maximize
///   g = g + weight_decay * parameter
///   buffer = step == 1 ? g : momentum * buffer + (1 - dampening) * g
///   g = nesterov ? g + momentum * buffer : buffer        (without momentum g stays)
///   parameter = parameter - learning_rate * g
///   working = parameter
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end). At the first
/// step the buffer is written without being read.
///
/// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters, so that it can change
/// without a new call; with `moving_momentum` it has the shape (2), and its second element is the momentum.
/// `gradient_factor`, if given, is a float32 scalar there; if it is infinite or NaN, nothing is changed. Call
/// it under NoGrad: parameters that require a gradient cannot be changed while calls are recorded. Throws
/// InvalidArgument for mismatched slots or options out of range. No slots: nothing happens.
void sgd_step(std::span<const SgdSlot> slots, const Tensor& learning_rate, const SgdOptions& options,
              const Tensor& gradient_factor = {});

}  // namespace sinter::ops
