#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/fill/fill_attributes.h>

namespace sinter::ops {
namespace {

OpSample make_fill(SampleMaker& maker) {
  return {{maker.tensor(maker.shape(static_cast<int>(maker.integer(0, 4))))},
          FillAttributes{maker.uniform(-5, 5)}};
}

std::vector<ReferenceTensor> fill_reference(const OpSample& sample) {
  ReferenceTensor target(sample.inputs[0].shape());
  for (double& value : target.values) value = sample.attributes.as<FillAttributes>().value;
  return {target};
}

OpSample make_full(SampleMaker& maker) {
  return {{},
          FullAttributes{.value = maker.uniform(-5, 5),
                         .shape = maker.shape(static_cast<int>(maker.integer(0, 4))),
                         .dtype = maker.dtype()}};
}

std::vector<ReferenceTensor> full_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<FullAttributes>();
  ReferenceTensor y(attributes.shape);
  for (double& value : y.values) value = attributes.value;
  return {y};
}

}  // namespace

void register_fill_samples(SampleRegistry& registry);
void register_fill_samples(SampleRegistry& registry) {
  registry.add({.op = "fill_", .make = make_fill, .reference = fill_reference, .check_gradient = false});
  registry.add({.op = "full", .make = make_full, .reference = full_reference, .check_gradient = false});
}

}  // namespace sinter::ops
