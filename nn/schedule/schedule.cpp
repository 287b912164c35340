#include <algorithm>
#include <cmath>
#include <numbers>

#include <sinter/core/base/error.h>
#include <sinter/nn/schedule/schedule.h>

namespace sinter::nn {
namespace {

void check_step(int64_t step) {
  SINTER_CHECK(step >= 0, "[schedule] expected a step >= 0 but got {}", step);
}

void check_length(int64_t steps) {
  SINTER_CHECK(steps > 0, "[schedule] expected a positive number of steps but got {}", steps);
}

/// `from` at share 0, `to` at share 1.
double interpolate(Anneal anneal, double from, double to, double share) {
  if (anneal == Anneal::kLinear) return from + (to - from) * share;
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
}

double share_of(int64_t step, int64_t steps) {
  return static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
}

}  // namespace

double StepSchedule::operator()(int64_t step) const {
  check_step(step);
  check_length(every);
  return base * std::pow(gamma, static_cast<double>(step / every));
}

double MultiStepSchedule::operator()(int64_t step) const {
  check_step(step);
  SINTER_CHECK(std::ranges::is_sorted(milestones), "[schedule] expected milestones in ascending order");
  const auto passed = std::ranges::upper_bound(milestones, step) - milestones.begin();
  return base * std::pow(gamma, static_cast<double>(passed));
}

double CosineSchedule::operator()(int64_t step) const {
  check_step(step);
  check_length(steps);
  return interpolate(Anneal::kCosine, base, end, share_of(step, steps));
}

double PolynomialSchedule::operator()(int64_t step) const {
  check_step(step);
  check_length(steps);
  return end + (base - end) * std::pow(1.0 - share_of(step, steps), power);
}

// `start` at step 0, `top` where the learning rate peaks, `end` at the last step.
double OneCycleSchedule::at(int64_t step, double start, double top, double end) const {
  check_step(step);
  check_length(steps);
  SINTER_CHECK(warmup_fraction >= 0.0 && warmup_fraction <= 1.0,
               "[schedule] expected a rising share in [0, 1] but got {}", warmup_fraction);
  SINTER_CHECK(initial_divisor > 0.0 && final_divisor > 0.0,
               "[schedule] expected divisors > 0 but got {} and {}", initial_divisor, final_divisor);
  // The peak may fall between two steps; with warmup_fraction = 0 it lies one step before the first, as in
  // torch. A share that means a whole step means that step, whichever way the product was rounded.
  const double exact = warmup_fraction * static_cast<double>(steps);
  const double whole = std::round(exact);
  const double summit = (std::abs(exact - whole) <= 1e-12 * whole ? whole : exact) - 1.0;
  const double last = static_cast<double>(steps - 1);
  const double place = std::min(static_cast<double>(step), last);
  if (place <= summit) return interpolate(anneal, start, top, summit > 0.0 ? place / summit : 1.0);
  return interpolate(anneal, top, end, (place - summit) / (last - summit));
}

double OneCycleSchedule::operator()(int64_t step) const {
  const double low = peak / initial_divisor;
  return at(step, low, peak, low / final_divisor);
}

double OneCycleSchedule::momentum(int64_t step) const {
  return at(step, max_momentum, base_momentum, max_momentum);
}

double Warmup::operator()(int64_t step) const {
  check_step(step);
  SINTER_CHECK(schedule != nullptr, "[schedule] the warm-up has no schedule behind it");
  SINTER_CHECK(steps >= 0, "[schedule] expected warm-up steps >= 0 but got {}", steps);
  SINTER_CHECK(start_factor >= 0.0, "[schedule] expected a start factor >= 0 but got {}", start_factor);
  if (step >= steps) return schedule(step - steps);
  return schedule(0) * (start_factor + (1.0 - start_factor) * share_of(step, steps));
}

}  // namespace sinter::nn
