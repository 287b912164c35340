// Learning-rate schedules: pure functions of the number of the step, counted from 0. They hold no state, so
// nothing of them goes into a checkpoint. Count epochs in place of steps where that is meant.
//
//   nn::Warmup schedule{nn::CosineSchedule{.base = 0.4, .steps = 9000}, 1000};
//   sgd.step(schedule(step));
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace sinter::nn {

/// Any schedule: gives the learning rate of a step. The ones below throw InvalidArgument for a step below 0
/// or for options out of range. Behind their last step they stay at the last value.
using Schedule = std::function<double(int64_t step)>;

/// base * gamma^floor(step / every). As torch's StepLR.
struct StepSchedule {
  double base = 0.1;
  int64_t every = 30;
  double gamma = 0.1;

  double operator()(int64_t step) const;
};

/// base * gamma^(number of milestones <= step). As torch's MultiStepLR.
struct MultiStepSchedule {
  double base = 0.1;
  std::vector<int64_t> milestones;  ///< in ascending order
  double gamma = 0.1;

  double operator()(int64_t step) const;
};

/// Half a cosine from `base` at step 0 to `end` at step `steps`. As torch's CosineAnnealingLR.
/// Source: I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
struct CosineSchedule {
  double base = 0.1;
  int64_t steps = 1;
  double end = 0.0;

  double operator()(int64_t step) const;
};

/// end + (base - end) * (1 - step / steps)^power. As torch's PolynomialLR (whose end is 0).
struct PolynomialSchedule {
  double base = 0.1;
  int64_t steps = 1;
  double power = 2.0;
  double end = 0.0;

  double operator()(int64_t step) const;
};

enum class Anneal { kCosine, kLinear };

/// Up from peak / initial_divisor to `peak`, then down to peak / initial_divisor / final_divisor at step
/// `steps` - 1. As torch's OneCycleLR with two phases. Source: L. Smith, N. Topin, "Super-convergence", 2019.
struct OneCycleSchedule {
  double peak = 0.1;
  int64_t steps = 1;
  double warmup_fraction = 0.3;  ///< share of the steps before the peak, in [0, 1]
  double initial_divisor = 25.0;
  double final_divisor = 1e4;
  Anneal anneal = Anneal::kCosine;
  double base_momentum = 0.85;  ///< at the peak of the learning rate
  double max_momentum = 0.95;   ///< at both ends

  double operator()(int64_t step) const;
  /// The momentum that goes with the learning rate, down where that goes up:
  /// `sgd.set_momentum(cycle.momentum(step)); sgd.step(cycle(step));`, or Adam::set_beta1.
  double momentum(int64_t step) const;

 private:
  double at(int64_t step, double start, double top, double end) const;
};

/// A straight line from start_factor * schedule(0) to schedule(0) over the first `steps` steps, then
/// `schedule` from its step 0. As torch's LinearLR and another one in sequence.
struct Warmup {
  Schedule schedule;
  int64_t steps = 0;
  double start_factor = 0.0;

  double operator()(int64_t step) const;
};

}  // namespace sinter::nn
