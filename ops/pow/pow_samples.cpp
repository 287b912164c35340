#include <cmath>

#include <sinter/ops/common/op_samples.h>
#include <sinter/ops/pow/pow_math.h>

namespace sinter::ops {
namespace {

double draw_exponent(SampleMaker& maker) {
  return maker.chance(0.7) ? maker.pick({2.0, 3.0, 1.0, 0.5, -1.0, -0.5, 0.0}) : maker.uniform(-2, 3);
}

OpSample make_pow(SampleMaker& maker) {
  return {{maker.tensor(maker.shape(3), 0.3, 2.5)}, PowAttributes{draw_exponent(maker)}};
}

std::vector<ReferenceTensor> pow_reference(const OpSample& sample) {
  const double exponent = sample.attributes.as<PowAttributes>().exponent;
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) value = std::exp(exponent * std::log(value));
  return {y};
}

OpSample make_pow_grad(SampleMaker& maker) {
  const Shape shape = maker.shape(2);
  return {{maker.tensor(shape, 0.3, 2.5), maker.tensor(shape)}, PowAttributes{draw_exponent(maker)}};
}

std::vector<ReferenceTensor> pow_grad_reference(const OpSample& sample) {
  const double exponent = sample.attributes.as<PowAttributes>().exponent;
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor dx = reference_of(sample.inputs[1]);
  for (size_t i = 0; i < dx.values.size(); ++i) {
    dx.values[i] *= exponent * std::exp(exponent * std::log(x.values[i])) / x.values[i];
  }
  return {dx};
}

}  // namespace

void register_pow_samples(SampleRegistry& registry);
void register_pow_samples(SampleRegistry& registry) {
  registry.add({.op = "pow", .make = make_pow, .reference = pow_reference});
  registry.add(
      {.op = "pow_grad", .make = make_pow_grad, .reference = pow_grad_reference, .check_gradient = false});
}

}  // namespace sinter::ops
