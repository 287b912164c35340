#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include <sinter/ops/common/op_samples.h>

namespace sinter::ops {
namespace {

using Function = double (*)(double);

struct Domain {
  double low, high;
  bool around_zero = false;  // without the neighbourhood of 0; then low and high are -2 and 2
};

/// `derivative` is that at x in terms of what the gradient op reads: x, or y = function(x), drawn from
/// `saved`.
struct UnaryCase {
  const char* op;
  Domain x;
  Function function;
  Domain saved;
  Function derivative;
};

double sigmoid_of(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double normal_cdf(double x) {
  return 0.5 * (1.0 + std::erf(x / std::numbers::sqrt2));
}
double normal_density(double x) {
  return std::exp(-x * x / 2.0) / std::sqrt(2.0 * std::numbers::pi);
}
double sign_of(double x) {
  return x > 0 ? 1.0 : -1.0;
}

constexpr Domain kAnywhere{-4, 4}, kPositive{0.2, 3}, kNotZero{-2, 2, true};

constexpr std::array kCases = {
    UnaryCase{"abs", kNotZero, [](double x) { return std::fabs(x); }, kNotZero, sign_of},
    UnaryCase{"square", kAnywhere, [](double x) { return x * x; }, kAnywhere,
              [](double x) { return 2.0 * x; }},
    UnaryCase{"exp", kAnywhere, [](double x) { return std::exp(x); }, kPositive, [](double y) { return y; }},
    UnaryCase{"log", kPositive, [](double x) { return std::log(x); }, kPositive,
              [](double x) { return 1.0 / x; }},
    UnaryCase{"sqrt", kPositive, [](double x) { return std::sqrt(x); }, kPositive,
              [](double y) { return 0.5 / y; }},
    UnaryCase{"rsqrt", kPositive, [](double x) { return 1.0 / std::sqrt(x); }, kPositive,
              [](double y) { return -0.5 * std::pow(y, 3.0); }},
    UnaryCase{"reciprocal", kNotZero, [](double x) { return 1.0 / x; }, kNotZero,
              [](double y) { return -std::pow(y, 2.0); }},
    UnaryCase{"sin", kAnywhere, [](double x) { return std::sin(x); }, kAnywhere,
              [](double x) { return std::cos(x); }},
    UnaryCase{"cos", kAnywhere, [](double x) { return std::cos(x); }, kAnywhere,
              [](double x) { return -std::sin(x); }},
    UnaryCase{"tanh",
              kAnywhere,
              [](double x) { return std::tanh(x); },
              {-1, 1},
              [](double y) { return 1.0 - y * y; }},
    UnaryCase{"erf", kAnywhere, [](double x) { return std::erf(x); }, kAnywhere,
              [](double x) { return 2.0 / std::sqrt(std::numbers::pi) * std::exp(-x * x); }},
    UnaryCase{"sigmoid", kAnywhere, sigmoid_of, {0, 1}, [](double y) { return y - y * y; }},
    UnaryCase{"silu", kAnywhere, [](double x) { return x * sigmoid_of(x); }, kAnywhere,
              [](double x) { return sigmoid_of(x) + x * std::exp(-x) / std::pow(1.0 + std::exp(-x), 2.0); }},
    UnaryCase{"gelu", kAnywhere, [](double x) { return x * normal_cdf(x); }, kAnywhere,
              [](double x) { return normal_cdf(x) + x * normal_density(x); }},
};

Shape any_shape(SampleMaker& maker) {
  return maker.chance(0.1) ? Shape{maker.integer(500, 1500)}
                           : maker.shape(static_cast<int>(maker.integer(0, 3)));
}

Tensor draw(SampleMaker& maker, const Shape& shape, const Domain& domain) {
  return domain.around_zero ? maker.tensor_off(shape, {0.0}, 0.3)
                            : maker.tensor(shape, domain.low, domain.high);
}

template <size_t kCase>
OpSample make_unary(SampleMaker& maker) {
  return {{draw(maker, any_shape(maker), kCases[kCase].x)}, {}};
}

template <size_t kCase>
std::vector<ReferenceTensor> unary_reference(const OpSample& sample) {
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) value = kCases[kCase].function(value);
  return {y};
}

template <size_t kCase>
OpSample make_unary_grad(SampleMaker& maker) {
  const Shape shape = any_shape(maker);
  return {{draw(maker, shape, kCases[kCase].saved), maker.tensor(shape)}, {}};
}

template <size_t kCase>
std::vector<ReferenceTensor> unary_grad_reference(const OpSample& sample) {
  const ReferenceTensor saved = reference_of(sample.inputs[0]);
  ReferenceTensor dx = reference_of(sample.inputs[1]);
  for (size_t i = 0; i < dx.values.size(); ++i) dx.values[i] *= kCases[kCase].derivative(saved.values[i]);
  return {dx};
}

OpSample make_neg(SampleMaker& maker) {
  return {{draw(maker, any_shape(maker), kAnywhere)}, {}};
}

std::vector<ReferenceTensor> neg_reference(const OpSample& sample) {
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) value = 0.0 - value;
  return {y};
}

}  // namespace

void register_unary_samples(SampleRegistry& registry);
void register_unary_samples(SampleRegistry& registry) {
  registry.add({.op = "neg", .make = make_neg, .reference = neg_reference});
  const auto add = [&]<size_t kCase> {
    registry.add({.op = kCases[kCase].op, .make = make_unary<kCase>, .reference = unary_reference<kCase>});
    registry.add({.op = std::string(kCases[kCase].op) + "_grad",
                  .make = make_unary_grad<kCase>,
                  .reference = unary_grad_reference<kCase>,
                  .check_gradient = false});
  };
  [&]<size_t... kCase>(std::index_sequence<kCase...>) {
    (add.template operator()<kCase>(), ...);
  }
  (std::make_index_sequence<kCases.size()>());
}

}  // namespace sinter::ops
