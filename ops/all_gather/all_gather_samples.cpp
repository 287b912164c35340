// Without other processes a tensor stays what it is; with them, tests/processes has the tests.
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make(SampleMaker& maker) {
  return {{maker.tensor(maker.shape(static_cast<int>(maker.integer(1, 4))))}, AllGatherAttributes{}};
}

std::vector<ReferenceTensor> reference(const OpSample& sample) {
  return {reference_of(sample.inputs[0])};
}

}  // namespace

void register_all_gather_samples(SampleRegistry& registry);
void register_all_gather_samples(SampleRegistry& registry) {
  registry.add({.op = "all_gather", .make = make, .reference = reference});
  registry.add({.op = "reduce_scatter", .make = make, .reference = reference});
}

}  // namespace sinter::ops
