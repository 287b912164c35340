#include <sinter/ops/common/op_samples.h>
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

}  // namespace

void register_fill_samples(SampleRegistry& registry);
void register_fill_samples(SampleRegistry& registry) {
  registry.add({.op = "fill_", .make = make_fill, .reference = fill_reference, .check_gradient = false});
}

}  // namespace sinter::ops
