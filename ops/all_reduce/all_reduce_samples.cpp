// Without other processes a sum is what it is of; with them, tests/processes has the tests.
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_one(SampleMaker& maker) {
  return {{maker.tensor(maker.shape(static_cast<int>(maker.integer(0, 4))))}, AllReduceAttributes{}};
}

std::vector<ReferenceTensor> one_reference(const OpSample& sample) {
  return {reference_of(sample.inputs[0])};
}

// Parts that fill their places: what lies between others is not defined.
OpSample make_begin(SampleMaker& maker) {
  OpSample sample{{}, AllReduceAttributes{}};
  for (int64_t parts = maker.integer(1, 4); parts > 0; --parts)
    sample.inputs.push_back(maker.tensor({maker.integer(1, 3), 64}));
  return sample;
}

ReferenceTensor joined(std::span<const Tensor> tensors) {
  std::vector<double> values;
  for (const Tensor& tensor : tensors) {
    const ReferenceTensor part = reference_of(tensor);
    values.insert(values.end(), part.values.begin(), part.values.end());
  }
  ReferenceTensor all(Shape{static_cast<int64_t>(values.size())});
  all.values = std::move(values);
  return all;
}

std::vector<ReferenceTensor> begin_reference(const OpSample& sample) {
  return {joined(sample.inputs)};
}

OpSample make_end(SampleMaker& maker) {
  OpSample sample = make_begin(maker);
  const int64_t count = joined(sample.inputs).shape.numel();
  sample.inputs.insert(sample.inputs.begin(), maker.tensor({count}));
  return sample;
}

}  // namespace

void register_all_reduce_samples(SampleRegistry& registry);
void register_all_reduce_samples(SampleRegistry& registry) {
  registry.add({.op = "all_reduce", .make = make_one, .reference = one_reference, .check_gradient = false});
  registry.add(
      {.op = "begin_all_reduce", .make = make_begin, .reference = begin_reference, .check_gradient = false});
  registry.add(
      {.op = "end_all_reduce", .make = make_end, .reference = one_reference, .check_gradient = false});
}

}  // namespace sinter::ops
