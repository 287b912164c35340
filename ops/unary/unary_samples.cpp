#include <algorithm>
#include <cmath>
#include <numbers>

#include <sinter/ops/common/samples/elementwise_samples.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {
namespace {

using Real = long double;

const SampleRange kAnywhere{}, kPositive{.low = 0.2, .high = 3},
    kNotZero{.low = -2, .high = 2, .kinks = {0}, .gap = 0.3};

Pow<double> draw_pow(SampleMaker& maker) {
  return {maker.chance(0.7) ? maker.pick({2.0, 3.0, 1.0, 0.5, -1.0, -0.5, 0.0}) : maker.uniform(-2, 3)};
}

// The bounds are numbers that every dtype represents, and x keeps away from all of them.
const SampleRange kOffBounds{.low = -2, .high = 2, .kinks = {-1.5, -0.5, 0.0, 0.5, 1.0}};

Clip<double> draw_clip(SampleMaker& maker) {
  Clip<double> clip{-INFINITY, INFINITY};
  if (maker.chance(0.8)) clip.low = maker.pick({-1.5, -0.5, 0.0});
  if (maker.chance(0.8)) clip.high = maker.pick({0.0, 0.5, 1.0});
  return clip;
}

Affine<double> draw_affine(SampleMaker& maker) {
  return {maker.uniform(-3, 3), maker.chance(0.5) ? 0.0 : maker.uniform(-3, 3)};
}

double affine_terms(const OpSample& sample, size_t) {
  const auto& affine = sample.attributes.as<Affine<double>>();
  return std::abs(affine.scale) * largest_of(reference_of(sample.inputs[0])) + std::abs(affine.shift);
}

}  // namespace

void register_unary_samples(SampleRegistry& registry);
void register_unary_samples(SampleRegistry& registry) {
  add_samples<Neg>(registry, kAnywhere, [](Real x) { return 0 - x; });
  add_samples<Abs>(registry, kNotZero, [](Real x) { return std::fabs(x); });
  add_samples<Sign>(
      registry, kNotZero, [](Real x) -> Real { return x > 0 ? 1 : -1; }, {.low = -1, .high = 1},
      [](Real) -> Real { return 0; });
  add_samples<Square>(registry, kAnywhere, [](Real x) { return x * x; });
  add_samples<Exp>(
      registry, kAnywhere, [](Real x) { return std::exp(x); }, kPositive, [](Real y) { return y; });
  add_samples<Log>(registry, kPositive, [](Real x) { return std::log(x); });
  add_samples<Sqrt>(
      registry, kPositive, [](Real x) { return std::sqrt(x); }, kPositive,
      [](Real y) { return 1 / (2 * y); });
  add_samples<Rsqrt>(
      registry, kPositive, [](Real x) { return 1 / std::sqrt(x); }, kPositive,
      [](Real y) { return -std::pow(y, Real{3}) / 2; });
  add_samples<Reciprocal>(
      registry, kNotZero, [](Real x) { return 1 / x; }, kNotZero,
      [](Real y) { return -std::pow(y, Real{2}); });
  // Differences of these three lose the digits of slopes near 0.
  add_samples<Sin>(
      registry, kAnywhere, [](Real x) { return std::sin(x); }, {}, [](Real x) { return std::cos(x); });
  add_samples<Cos>(
      registry, kAnywhere, [](Real x) { return std::cos(x); }, {}, [](Real x) { return -std::sin(x); });
  add_samples<Erf>(
      registry, kAnywhere, [](Real x) { return std::erf(x); }, {},
      [](Real x) { return 2 * std::numbers::inv_sqrtpi_v<Real> * std::exp(-x * x); });
  add_samples<Tanh>(
      registry, kAnywhere, [](Real x) { return std::tanh(x); }, {.low = -1, .high = 1},
      [](Real y) { return 1 - y * y; }, {.slope = 1});
  add_samples<Pow>(
      registry, {.low = 0.3, .high = 2.5}, draw_pow,
      [](Real x, const Pow<double>& pow) { return std::exp(pow.exponent * std::log(x)); },
      [](Real x, const Pow<double>& pow) {
        return pow.exponent * std::exp((pow.exponent - 1) * std::log(x));
      });
  add_samples<Clip>(registry, kOffBounds, draw_clip, [](Real x, const Clip<double>& clip) {
    return std::min<Real>(std::max<Real>(x, clip.low), clip.high);
  });
  add_samples<Affine>(registry, kAnywhere, draw_affine,
                      [](Real x, const Affine<double>& affine) { return affine.scale * x + affine.shift; },
                      nullptr, {.y = affine_terms});
}

}  // namespace sinter::ops
