// The rules by which optimisers change an element of a parameter, for every device, and how the inputs of
// their ops lie.
//
// A rule has the op's `kName` and `Options`, the names of its buffers and the `Element`, made once for a slot
// from the options, the rates behind the learning rate's address, the number of the step (0: none was given)
// and the sums for the trust ratio. It maps a parameter and its gradient to the new parameter and changes the
// buffers that it `uses`; in the compute type C, what all elements share worked out in double precision. What
// options leave out is skipped, so that 0 * infinity makes no NaN. `branches` a CPU's loop knows when
// compiled.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::ops {

/// Sums of squares over one parameter: of its elements and of those of the direction that it is to move in.
struct TrustSums {
  double parameter = 0.0;
  double direction = 0.0;

  SINTER_HOST_DEVICE void add(double p, double d) {
    parameter += p * p;
    direction += d * d;
  }
  SINTER_HOST_DEVICE void add(const TrustSums& other) {
    parameter += other.parameter;
    direction += other.direction;
  }
};

/// coefficient * |parameter| / (|direction| + weight_decay * |parameter| + epsilon); 1 if a norm is 0.
SINTER_HOST_DEVICE inline double trust_ratio(const TrustSums& sums, double coefficient = 1.0,
                                             double weight_decay = 0.0, double epsilon = 0.0) {
  if (!(sums.parameter > 0.0 && sums.direction > 0.0)) return 1.0;
  const double norm = std::sqrt(sums.parameter);
  return coefficient * norm / (std::sqrt(sums.direction) + weight_decay * norm + epsilon);
}

/// a * b + c, with one rounding where the processor has that: where two products meet, compilers would choose
/// by the code around which of them they fuse, and an element's bits would depend on the place where it lies.
template <class C>
SINTER_HOST_DEVICE inline C multiply_add(C a, C b, C c) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
  return std::fma(a, b, c);
#else
  return c + a * b;
#endif
}

/// parameter - rate * step, in the same way.
template <class C>
SINTER_HOST_DEVICE inline C descend(C parameter, C rate, C step) {
  return multiply_add(-rate, step, parameter);
}

struct BufferName {
  const char* name;
  bool optional = false;
};

/// What a rule does with the number of the step.
enum class StepCount { kPassedOver, kMayRead, kNeeds };

struct SgdRule {
  using Options = update::SGDStep;
  static constexpr const char* kName = "sgd_step";
  static constexpr std::array kBuffers = {BufferName{"momentum", true}};
  static constexpr StepCount kStep = StepCount::kMayRead;
  static constexpr bool kTrusts = false;
  static constexpr bool moves(const Options& options) { return options.moving_momentum; }

  template <class C>
  struct Element {
    SINTER_HOST_DEVICE Element(const Options& options, const double* rates, int64_t step, const TrustSums&)
        : learning_rate(static_cast<C>(rates[0])),
          momentum(static_cast<C>(options.moving_momentum ? rates[1] : options.momentum)),
          gradient_share(static_cast<C>(1.0 - options.dampening)),
          weight_decay(static_cast<C>(options.weight_decay)),
          decays(options.weight_decay != 0),
          nesterov(options.nesterov),
          maximizes(options.maximize),
          first_step(step == 1),
          has_momentum(options.momentum != 0) {}

    static constexpr auto branches() {
      return std::array{&Element::has_momentum, &Element::first_step, &Element::nesterov};
    }
    SINTER_HOST_DEVICE bool uses(size_t) const { return has_momentum; }
    SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C (&buffers)[1]) const {
      const C descent = maximizes ? -gradient : gradient;
      const C g = decays ? multiply_add(weight_decay, parameter, descent) : descent;
      C step = g;
      if (has_momentum) {
        C& buffer = buffers[0];
        buffer = first_step ? g : multiply_add(gradient_share, g, momentum * buffer);
        step = nesterov ? multiply_add(momentum, buffer, g) : buffer;
      }
      return descend(parameter, learning_rate, step);
    }

    C learning_rate, momentum, gradient_share, weight_decay;
    bool decays, nesterov, maximizes, first_step, has_momentum;
  };
};

struct AdamWRule {
  using Options = update::AdamWStep;
  static constexpr const char* kName = "adamw_step";
  static constexpr std::array kBuffers = {BufferName{"exp_avg"}, BufferName{"exp_avg_sq"},
                                          BufferName{"max_exp_avg_sq", true}};
  static constexpr StepCount kStep = StepCount::kNeeds;
  static constexpr bool kTrusts = false;
  static constexpr bool moves(const Options& options) { return options.moving_beta1; }

  template <class C>
  struct Element {
    SINTER_HOST_DEVICE Element(const Options& options, const double* rates, int64_t step, const TrustSums&)
        : Element(options, rates[0], options.moving_beta1 ? rates[1] : options.beta1,
                  static_cast<double>(step)) {}
    SINTER_HOST_DEVICE Element(const Options& options, double rate, double beta1, double step)
        : decay(static_cast<C>(options.decoupled ? 1.0 - rate * options.weight_decay : options.weight_decay)),
          beta2(static_cast<C>(options.beta2)),
          share1(static_cast<C>(1.0 - beta1)),
          share2(static_cast<C>(1.0 - options.beta2)),
          step_size(static_cast<C>(rate / (1.0 - std::pow(beta1, step)))),
          correction2(static_cast<C>(std::sqrt(1.0 - std::pow(options.beta2, step)))),
          epsilon(static_cast<C>(options.epsilon)),
          decays(options.weight_decay != 0),
          decoupled(options.decoupled),
          maximizes(options.maximize),
          amsgrad(options.amsgrad) {}

    static constexpr auto branches() { return std::array{&Element::amsgrad}; }
    SINTER_HOST_DEVICE bool uses(size_t buffer) const { return buffer < 2 || amsgrad; }
    SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C (&buffers)[3]) const {
      C &exp_avg = buffers[0], &exp_avg_sq = buffers[1], &largest = buffers[2];
      if (maximizes) gradient = -gradient;
      if (decays) {
        gradient = decoupled ? gradient : multiply_add(decay, parameter, gradient);
        parameter = decoupled ? parameter * decay : parameter;
      }
      exp_avg = multiply_add(share1, gradient - exp_avg, exp_avg);
      exp_avg_sq = multiply_add(share2 * gradient, gradient, beta2 * exp_avg_sq);
      C square = exp_avg_sq;
      if (amsgrad) {
        if (square > largest || std::isnan(square)) largest = square;  // NaN stays, as in PyTorch
        square = largest;
      }
      return descend(parameter, step_size, exp_avg / (std::sqrt(square) / correction2 + epsilon));
    }

    C decay, beta2, share1, share2, step_size, correction2, epsilon;
    bool decays, decoupled, maximizes, amsgrad;
  };
};

struct RmsPropRule {
  using Options = update::RMSpropStep;
  static constexpr const char* kName = "rmsprop_step";
  static constexpr std::array kBuffers = {BufferName{"square_avg"}, BufferName{"grad_avg", true},
                                          BufferName{"momentum", true}};
  static constexpr StepCount kStep = StepCount::kPassedOver;
  static constexpr bool kTrusts = false;
  static constexpr bool moves(const Options&) { return false; }

  template <class C>
  struct Element {
    SINTER_HOST_DEVICE Element(const Options& options, const double* rates, int64_t, const TrustSums&)
        : learning_rate(static_cast<C>(rates[0])),
          alpha(static_cast<C>(options.alpha)),
          share(static_cast<C>(1.0 - options.alpha)),
          epsilon(static_cast<C>(options.epsilon)),
          momentum(static_cast<C>(options.momentum)),
          weight_decay(static_cast<C>(options.weight_decay)),
          decays(options.weight_decay != 0),
          maximizes(options.maximize),
          centered(options.centered),
          has_momentum(options.momentum != 0) {}

    static constexpr auto branches() { return std::array{&Element::centered, &Element::has_momentum}; }
    SINTER_HOST_DEVICE bool uses(size_t buffer) const {
      return buffer == 0 || (buffer == 1 ? centered : has_momentum);
    }
    SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C (&buffers)[3]) const {
      C &square = buffers[0], &mean = buffers[1], &buffer = buffers[2];
      if (maximizes) gradient = -gradient;
      if (decays) gradient = multiply_add(weight_decay, parameter, gradient);
      square = multiply_add(share * gradient, gradient, alpha * square);
      C spread = square;
      if (centered) {
        mean = multiply_add(share, gradient - mean, mean);
        spread = multiply_add(-mean, mean, spread);
      }
      C step = gradient / (std::sqrt(spread) + epsilon);
      if (has_momentum) {
        buffer = multiply_add(momentum, buffer, step);
        step = buffer;
      }
      return descend(parameter, learning_rate, step);
    }

    C learning_rate, alpha, share, epsilon, momentum, weight_decay;
    bool decays, maximizes, centered, has_momentum;
  };
};

// Rules with a trust ratio are first asked for the direction of all elements, which may change its copies of
// the buffers.

struct LarsRule {
  using Options = update::LARSStep;
  static constexpr const char* kName = "lars_step";
  static constexpr std::array kBuffers = {BufferName{"momentum"}};
  static constexpr StepCount kStep = StepCount::kPassedOver;
  static constexpr bool kTrusts = true;
  static constexpr bool kDirectionReadsBuffers = false;
  static constexpr bool moves(const Options& options) { return options.moving_momentum; }

  template <class C>
  struct Element {
    SINTER_HOST_DEVICE Element(const Options& options, const double* rates, int64_t, const TrustSums& sums)
        : learning_rate(static_cast<C>(rates[0])),
          momentum(static_cast<C>(options.moving_momentum ? rates[1] : options.momentum)),
          weight_decay(static_cast<C>(options.weight_decay)),
          ratio(static_cast<C>(options.adapts ? trust_ratio(sums, options.trust_coefficient,
                                                            options.weight_decay, options.epsilon)
                                              : 1.0)),
          decays(options.weight_decay != 0),
          nesterov(options.nesterov) {}

    static constexpr auto branches() { return std::array<bool Element::*, 0>{}; }
    SINTER_HOST_DEVICE static constexpr bool uses(size_t) { return true; }
    SINTER_HOST_DEVICE C direction(C, C gradient, C (&)[1]) const { return gradient; }
    SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C (&buffers)[1]) const {
      C& buffer = buffers[0];
      const C g = ratio * (decays ? multiply_add(weight_decay, parameter, gradient) : gradient);
      buffer = multiply_add(momentum, buffer, g);
      return descend(parameter, learning_rate, nesterov ? multiply_add(momentum, buffer, g) : buffer);
    }

    C learning_rate, momentum, weight_decay, ratio;
    bool decays, nesterov;
  };
};

struct LambRule {
  using Options = update::LAMBStep;
  static constexpr const char* kName = "lamb_step";
  static constexpr std::array kBuffers = {BufferName{"exp_avg"}, BufferName{"exp_avg_sq"}};
  static constexpr StepCount kStep = StepCount::kNeeds;
  static constexpr bool kTrusts = true;
  static constexpr bool kDirectionReadsBuffers = true;
  static constexpr bool moves(const Options& options) { return options.moving_beta1; }

  template <class C>
  struct Element {
    SINTER_HOST_DEVICE Element(const Options& options, const double* rates, int64_t step,
                               const TrustSums& sums)
        : Element(options, options.moving_beta1 ? rates[1] : options.beta1, static_cast<double>(step),
                  rates[0] * (options.adapts ? trust_ratio(sums) : 1.0)) {}
    SINTER_HOST_DEVICE Element(const Options& options, double beta1, double step, double scaled_rate)
        : rate(static_cast<C>(scaled_rate)),
          beta2(static_cast<C>(options.beta2)),
          share1(static_cast<C>(1.0 - beta1)),
          share2(static_cast<C>(1.0 - options.beta2)),
          correction1(static_cast<C>(1.0 - std::pow(beta1, step))),
          correction2(static_cast<C>(std::sqrt(1.0 - std::pow(options.beta2, step)))),
          epsilon(static_cast<C>(options.epsilon)),
          weight_decay(static_cast<C>(options.weight_decay)),
          decays(options.weight_decay != 0) {}

    static constexpr auto branches() { return std::array<bool Element::*, 0>{}; }
    SINTER_HOST_DEVICE static constexpr bool uses(size_t) { return true; }
    SINTER_HOST_DEVICE C direction(C parameter, C gradient, C (&buffers)[2]) const {
      C &exp_avg = buffers[0], &exp_avg_sq = buffers[1];
      exp_avg = multiply_add(share1, gradient - exp_avg, exp_avg);
      exp_avg_sq = multiply_add(share2 * gradient, gradient, beta2 * exp_avg_sq);
      const C adam = exp_avg / correction1 / (std::sqrt(exp_avg_sq) / correction2 + epsilon);
      return decays ? multiply_add(weight_decay, parameter, adam) : adam;
    }
    SINTER_HOST_DEVICE C operator()(C parameter, C gradient, C (&buffers)[2]) const {
      return descend(parameter, rate, direction(parameter, gradient, buffers));
    }

    C rate, beta2, share1, share2, correction1, correction2, epsilon, weight_decay;
    bool decays;
  };
};

/// Calls function.operator()<Rule>() for every rule.
template <class F>
void for_each_rule(const F& function) {
  function.template operator()<SgdRule>();
  function.template operator()<AdamWRule>();
  function.template operator()<RmsPropRule>();
  function.template operator()<LarsRule>();
  function.template operator()<LambRule>();
}

/// A slot of an op: parameter, gradient, the rule's buffers, and these, counted from the end of those arrays.
enum UpdateInput : size_t { kWorkingCopy, kLearningRate, kStepCount, kGradientFactor, kUpdateInputs };
template <class Rule>
inline constexpr size_t kArrays = 2 + Rule::kBuffers.size();
template <class Rule>
inline constexpr size_t kSlotInputs = kArrays<Rule> + kUpdateInputs;

/// Calls `function.operator()<T, G>()` with the types of a parameter and of its gradient and working copy: T
/// = G without a working copy, else T = float and G a 16-bit type.
template <class F>
void dispatch_update(DType parameter, DType gradient, const char* tag, F&& function) {
  if (parameter == gradient) {
    dispatch_float(parameter, tag, [&]<class T> { function.template operator()<T, T>(); });
  } else if (gradient == DType::kFloat16) {
    function.template operator()<float, float16>();
  } else {
    function.template operator()<float, bfloat16>();
  }
}

}  // namespace sinter::ops
