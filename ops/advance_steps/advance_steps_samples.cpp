#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_advance_steps(SampleMaker& maker) {
  const Shape shape{maker.integer(0, 600)};
  OpSample sample{{maker.indices(shape, 0, 99), Tensor(), Tensor()}, {}};
  if (maker.chance(0.5)) {
    sample.inputs[1] = Tensor::empty(shape, DType::kBool);
    for (int64_t i = 0; i < shape[0]; ++i) sample.inputs[1].data<bool>()[i] = maker.chance(0.7);
  }
  if (maker.chance(0.6)) sample.inputs[2] = Tensor::scalar(maker.pick({1.0f, 0.0f, 1e30f, INFINITY, NAN}));
  return sample;
}

std::vector<ReferenceTensor> advance_steps_reference(const OpSample& sample) {
  ReferenceTensor counts = reference_of(sample.inputs[0]);
  if (sample.inputs[2].defined() && !std::isfinite(sample.inputs[2].item())) return {counts};
  for (int64_t i = 0; i < counts.shape[0]; ++i) {
    if (!sample.inputs[1].defined() || sample.inputs[1].data<bool>()[i]) counts[i] += 1;
  }
  return {counts};
}

}  // namespace

void register_advance_steps_samples(SampleRegistry& registry);
void register_advance_steps_samples(SampleRegistry& registry) {
  registry.add({.op = "advance_steps",
                .make = make_advance_steps,
                .reference = advance_steps_reference,
                .dtypes = {DType::kFloat32},
                .check_gradient = false});
}

}  // namespace sinter::ops
