#include <algorithm>
#include <cmath>
#include <numbers>

#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/common/samples/elementwise_samples.h>

namespace sinter::ops {
namespace {

using Real = long double;

Real sigmoid_of(Real x) {
  return 1 / (1 + std::exp(-x));
}

Real normal_cdf(Real x) {
  return std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2;
}

}  // namespace

void register_activation_samples(SampleRegistry& registry);
void register_activation_samples(SampleRegistry& registry) {
  add_samples<Relu>(
      registry, {.kinks = {0}}, [](Real x) { return std::max<Real>(x, 0); }, {.kinks = {0}},
      [](Real y) -> Real { return y > 0; });
  add_samples<Sigmoid>(registry, {}, sigmoid_of, {.low = 0, .high = 1}, [](Real y) { return y - y * y; });
  // The slopes of SiLU, GELU and hardswish cross 0 as sums of two terms of about 1; so does x / 6 + 1/2 near
  // -3.
  add_samples<Silu>(registry, {}, [](Real x) { return x * sigmoid_of(x); }, {.slope = 1});
  add_samples<Gelu>(registry, {}, [](Real x) { return x * normal_cdf(x); }, {.slope = 1});
  add_samples<Hardsigmoid>(registry, {.kinks = {-3, 3}},
                           [](Real x) { return std::clamp<Real>(x + 3, 0, 6) / 6; }, {.y = unit_terms});
  add_samples<Hardswish>(registry, {.kinks = {-3, 3}},
                         [](Real x) { return x * std::clamp<Real>(x + 3, 0, 6) / 6; },
                         {.y = unit_terms, .slope = 1});
  // Differences of softplus lose the digits of its slope where that is small.
  add_samples<Softplus>(
      registry, {}, [](SampleMaker& maker) { return Softplus<double>{maker.uniform(0.5, 3)}; },
      [](Real x, const Softplus<double>& op) { return std::log1p(std::exp(op.beta * x)) / op.beta; },
      [](Real x, const Softplus<double>& op) { return sigmoid_of(op.beta * x); });
}

}  // namespace sinter::ops
