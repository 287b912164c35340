#include <sinter/ops/common/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_relu(SampleMaker& maker) {
  return {{maker.tensor_off(maker.shape(3), {0.0})}, {}};
}

std::vector<ReferenceTensor> relu_reference(const OpSample& sample) {
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) value = value > 0 ? value : 0;
  return {y};
}

OpSample make_relu_grad(SampleMaker& maker) {
  const Shape shape = maker.shape(2);
  return {{maker.tensor_off(shape, {0.0}), maker.tensor(shape)}, {}};
}

std::vector<ReferenceTensor> relu_grad_reference(const OpSample& sample) {
  const ReferenceTensor y = reference_of(sample.inputs[0]);
  ReferenceTensor dx = reference_of(sample.inputs[1]);
  for (size_t i = 0; i < dx.values.size(); ++i) dx.values[i] = y.values[i] > 0 ? dx.values[i] : 0;
  return {dx};
}

}  // namespace

void register_relu_samples(SampleRegistry& registry);
void register_relu_samples(SampleRegistry& registry) {
  registry.add({.op = "relu", .make = make_relu, .reference = relu_reference});
  registry.add(
      {.op = "relu_grad", .make = make_relu_grad, .reference = relu_grad_reference, .check_gradient = false});
}

}  // namespace sinter::ops
