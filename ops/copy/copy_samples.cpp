#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_copy(SampleMaker& maker) {
  return {{maker.tensor(maker.shape(static_cast<int>(maker.integer(0, 4))))}, {}};
}

std::vector<ReferenceTensor> copy_reference(const OpSample& sample) {
  return {reference_of(sample.inputs[0])};
}

OpSample make_copy_into(SampleMaker& maker) {
  const Shape shape = maker.shape(static_cast<int>(maker.integer(0, 4)));
  return {{maker.tensor(shape), maker.tensor(shape)}, {}};
}

std::vector<ReferenceTensor> copy_into_reference(const OpSample& sample) {
  return {reference_of(sample.inputs[1])};
}

}  // namespace

void register_copy_samples(SampleRegistry& registry);
void register_copy_samples(SampleRegistry& registry) {
  registry.add({.op = "copy", .make = make_copy, .reference = copy_reference});
  registry.add(
      {.op = "copy_", .make = make_copy_into, .reference = copy_into_reference, .check_gradient = false});
}

}  // namespace sinter::ops
