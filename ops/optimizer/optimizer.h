// The update steps of optimisers, each over all parameters of a model in one call: SGD, AdamW and Adam,
// RMSprop, LARS, LAMB.
//
// What all steps share: they change parameters, buffers and working copies of all slots in place, in the
// parameter's compute type (float32 for the 16-bit dtypes), rounded once at the end. In the formulas, g
// begins as gradient * gradient_factor, and -g to maximize; working = parameter ends them.
//
// `learning_rate` is a float64 scalar (rank 0) on the device of the parameters, so that it can change without
// a new call. With an option that begins with `moving_` it has the shape (2), and its second element stands
// in for the number that the option names. `gradient_factor`, if given, is a float32 scalar there; if it is
// infinite or NaN, nothing is changed. Steps are not changed. Call them under NoGrad: parameters that require
// a gradient cannot be changed while calls are recorded. They throw InvalidArgument for mismatched slots or
// options out of range; adamw_step and lamb_step, on the CPU, also for step < 1, unless the update is
// skipped. No slots: nothing happens.
#pragma once

#include <span>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// One parameter with what its update reads and writes, all of one shape and on one device.
struct UpdateSlot {
  Tensor parameter;  ///< of a floating-point dtype
  Tensor gradient;   ///< of the working copy's dtype where there is one, else of the parameter's
  /// Zeros at the start, of the parameter's dtype. Each step says what they are; those that its options do
  /// not ask for are undefined.
  Tensor buffers[3] = {};
  Tensor step = {};     ///< int64 scalar, the number of this update: 1 for the first
  Tensor working = {};  ///< float16 or bfloat16 copy of a float32 parameter, overwritten; may be undefined
};

namespace update {
struct SGDStep {
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;         ///< needs momentum > 0 and dampening = 0
  bool maximize = false;         ///< climb: the gradient counts with the opposite sign
  bool moving_momentum = false;  ///< `momentum` > 0 too

  bool operator==(const SGDStep&) const = default;
  template <class Self = SGDStep>
  static constexpr auto fields() {
    return std::tuple(field("momentum", &Self::momentum), field("dampening", &Self::dampening),
                      field("weight_decay", &Self::weight_decay), field("nesterov", &Self::nesterov),
                      field("maximize", &Self::maximize), field("moving_momentum", &Self::moving_momentum));
  }
};

/// Exactly PyTorch's torch.optim.SGD. Buffers: momentum, if it is not 0.
///   g = g + weight_decay * parameter
///   buffer = step == 1 ? g : momentum * buffer + (1 - dampening) * g
///   g = nesterov ? g + momentum * buffer : buffer        (without momentum g stays)
///   parameter = parameter - learning_rate * g
/// At the first step the buffer is written without being read. `step` may be undefined if the buffer starts
/// as zeros and nothing dampens it.
void sgd_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate, const SGDStep& options,
              const Tensor& gradient_factor = {});

struct AdamWStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  bool decoupled = true;  ///< AdamW; false: Adam, whose weight decay is added to the gradient
  bool amsgrad = false;   ///< divide by the largest exp_avg_sq so far
  bool maximize = false;  ///< climb: the gradient counts with the opposite sign
  bool moving_beta1 = false;

  bool operator==(const AdamWStep&) const = default;
  template <class Self = AdamWStep>
  static constexpr auto fields() {
    return std::tuple(field("beta1", &Self::beta1), field("beta2", &Self::beta2),
                      field("epsilon", &Self::epsilon), field("weight_decay", &Self::weight_decay),
                      field("decoupled", &Self::decoupled), field("amsgrad", &Self::amsgrad),
                      field("maximize", &Self::maximize), field("moving_beta1", &Self::moving_beta1));
  }
};

/// Exactly PyTorch's torch.optim.AdamW. Buffers: exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq.
///   parameter = parameter * (1 - learning_rate * weight_decay)     (decoupled; else g += weight_decay *
///                                                                   parameter)
///   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
///   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
///   max_exp_avg_sq = max(max_exp_avg_sq, exp_avg_sq)    (amsgrad; it then takes the place of exp_avg_sq in:)
///   parameter = parameter - learning_rate / (1 - beta1^step) * exp_avg /
///               (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + epsilon)
/// Source: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019; D. Kingma, J. Ba,
/// "Adam: a method for stochastic optimization", ICLR 2015; S. Reddi, S. Kale, S. Kumar, "On the convergence
/// of Adam and beyond", ICLR 2018 (amsgrad).
void adamw_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate, const AdamWStep& options,
                const Tensor& gradient_factor = {});

struct RMSpropStep {
  double alpha = 0.99;        ///< in [0, 1): the share of the average that a step keeps
  double epsilon = 1e-8;      ///< >= 0
  double momentum = 0.0;      ///< >= 0
  double weight_decay = 0.0;  ///< >= 0
  bool centered = false;      ///< divide by the deviation, the mean gradient taken away
  bool maximize = false;      ///< climb: the gradient counts with the opposite sign

  bool operator==(const RMSpropStep&) const = default;
  template <class Self = RMSpropStep>
  static constexpr auto fields() {
    return std::tuple(field("alpha", &Self::alpha), field("epsilon", &Self::epsilon),
                      field("momentum", &Self::momentum), field("weight_decay", &Self::weight_decay),
                      field("centered", &Self::centered), field("maximize", &Self::maximize));
  }
};

/// Exactly PyTorch's torch.optim.RMSprop. Buffers: square_avg; grad_avg, if centered; momentum, if it is not
/// 0. Reads no step.
///   g = g + weight_decay * parameter
///   square_avg = alpha * square_avg + (1 - alpha) * g * g
///   grad_avg = grad_avg + (1 - alpha) * (g - grad_avg)                                         (centered)
///   d = sqrt(square_avg), or sqrt(square_avg - grad_avg^2) when centered, + epsilon
///   momentum_buffer = momentum * momentum_buffer + g / d                                       (momentum)
///   parameter = parameter - learning_rate * (momentum_buffer or g / d)
/// Source: G. Hinton, "Neural networks for machine learning", lecture 6e, 2012; A. Graves, "Generating
/// sequences with recurrent neural networks", arXiv:1308.0850 (centered).
void rmsprop_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate, const RMSpropStep& options,
                  const Tensor& gradient_factor = {});

struct LARSStep {
  double momentum = 0.9;
  double weight_decay = 0.0;
  double trust_coefficient = 0.001;
  double epsilon = 1e-8;
  bool nesterov = false;
  bool adapts = true;  ///< false: the trust ratio is 1, as norms and biases want it
  bool moving_momentum = false;

  bool operator==(const LARSStep&) const = default;
  template <class Self = LARSStep>
  static constexpr auto fields() {
    return std::tuple(field("momentum", &Self::momentum), field("weight_decay", &Self::weight_decay),
                      field("trust_coefficient", &Self::trust_coefficient), field("epsilon", &Self::epsilon),
                      field("nesterov", &Self::nesterov), field("adapts", &Self::adapts),
                      field("moving_momentum", &Self::moving_momentum));
  }
};

/// LARS: SGD with momentum and a trust ratio for each parameter. Buffers: momentum. Reads no step.
///   ratio = trust_coefficient * |parameter| / (|g| + weight_decay * |parameter| + epsilon), where |.| is the
///           Euclidean norm over the whole parameter; 1 if |parameter| or |g| is 0, or without `adapts`
///   g = ratio * (g + weight_decay * parameter)
///   momentum = options.momentum * momentum + g
///   g = nesterov ? g + options.momentum * momentum : momentum
///   parameter = parameter - learning_rate * g
/// Norms are in double precision, in an order that depends on the shapes alone. The learning rate stands
/// outside the momentum, as in torch.optim.SGD; in the paper's equations it stands inside. Source: Y. You, I.
/// Gitman, B. Ginsburg, "Large batch training of convolutional networks", 2017.
void lars_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate, const LARSStep& options,
               const Tensor& gradient_factor = {});

struct LAMBStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  bool adapts = true;  ///< false: the trust ratio is 1, as norms and biases want it
  bool moving_beta1 = false;

  bool operator==(const LAMBStep&) const = default;
  template <class Self = LAMBStep>
  static constexpr auto fields() {
    return std::tuple(field("beta1", &Self::beta1), field("beta2", &Self::beta2),
                      field("epsilon", &Self::epsilon), field("weight_decay", &Self::weight_decay),
                      field("adapts", &Self::adapts), field("moving_beta1", &Self::moving_beta1));
  }
};

/// LAMB: Adam's direction with weight decay and a trust ratio for each parameter. Buffers: exp_avg,
/// exp_avg_sq.
///   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
///   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
///   u = exp_avg / (1 - beta1^step) / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + epsilon)
///       + weight_decay * parameter
///   ratio = |parameter| / |u|, where |.| is the Euclidean norm over the whole parameter; 1 if one of the
///           norms is 0, or without `adapts`
///   parameter = parameter - learning_rate * ratio * u
/// Norms are in double precision, in an order that depends on the shapes alone. The ratio has no bounds, and
/// gradients are not clipped here: some implementations divide them by their common norm first, which
/// nn::clip_grad_norm and nn::ScaledStepOptions::max_grad_norm do. Source: Y. You et al., "Large batch
/// optimization for deep learning: training BERT in 76 minutes", ICLR 2020, algorithm 2.
void lamb_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate, const LAMBStep& options,
               const Tensor& gradient_factor = {});
}  // namespace update

}  // namespace sinter::ops
