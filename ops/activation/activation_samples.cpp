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
  add_samples<LeakyRelu>(
      registry, {.kinks = {0}},
      [](SampleMaker& maker) { return LeakyRelu<double>{maker.uniform(-0.5, 1.5)}; },
      [](Real x, const LeakyRelu<double>& op) { return x > 0 ? x : x * op.negative_slope; });
  add_samples<Relu6>(
      registry, {.low = -4, .high = 10, .kinks = {0, 6}}, [](Real x) { return std::clamp<Real>(x, 0, 6); },
      {.low = 0, .high = 6, .kinks = {0, 6}}, [](Real y) -> Real { return y > 0 && y < 6; });
  add_samples<Elu>(
      registry, {.kinks = {0}}, [](SampleMaker& maker) { return Elu<double>{maker.uniform(0.2, 3)}; },
      [](Real x, const Elu<double>& op) { return x > 0 ? x : op.alpha * std::expm1(x); });
  // Its slope crosses 0 as a sum of two terms of up to 1.
  add_samples<Mish>(registry, {}, [](Real x) { return x * std::tanh(std::log1p(std::exp(x))); },
                    {.slope = 1});
}

}  // namespace sinter::ops
