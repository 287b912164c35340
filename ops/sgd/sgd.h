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
  bool nesterov = false;    ///< needs momentum > 0 and dampening = 0
  bool first_step = false;  ///< momentum buffers are written without being read: buffer = gradient

  bool operator==(const SgdOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("momentum", &SgdOptions::momentum), field("dampening", &SgdOptions::dampening),
                      field("weight_decay", &SgdOptions::weight_decay),
                      field("nesterov", &SgdOptions::nesterov), field("first_step", &SgdOptions::first_step));
  }
};

/// One parameter with its gradient and its momentum buffer: same shape, floating-point dtype and device.
struct SgdSlot {
  Tensor parameter;
  Tensor gradient;
  Tensor momentum;  ///< undefined if and only if the momentum is 0
};

/// Changes parameters and momentum buffers in place, all slots in one call, exactly by PyTorch's
/// torch.optim.SGD:
///   g = gradient + weight_decay * parameter
///   buffer = first_step ? g : momentum * buffer + (1 - dampening) * g
///   g = nesterov ? g + momentum * buffer : buffer        (without momentum g stays)
///   parameter = parameter - learning_rate * g
/// in the parameter's compute type (float32 for the 16-bit dtypes, rounded once at the end).
/// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters, so that it can change
/// without a new call. Call it under NoGrad: parameters that require a gradient cannot be changed while calls
/// are recorded. Throws InvalidArgument for mismatched slots or options out of range. No slots: nothing
/// happens.
void sgd_step(std::span<const SgdSlot> slots, const Tensor& learning_rate, const SgdOptions& options);

}  // namespace sinter::ops
