#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/concat/concat.h>

namespace sinter::ops {
namespace {

OpSample make_concat(SampleMaker& maker) {
  const int rank = static_cast<int>(maker.integer(1, 4));
  const Shape shape = maker.shape(rank, 6);
  const int axis = static_cast<int>(maker.integer(0, rank - 1));
  std::vector<Tensor> tensors;
  for (int64_t count = maker.integer(1, 4); count > 0; --count) {
    tensors.push_back(maker.tensor(shape.with(axis, maker.integer(0, 5))));
  }
  return {tensors, ConcatAttributes{maker.chance(0.3) ? axis - rank : axis}};
}

std::vector<ReferenceTensor> concat_reference(const OpSample& sample) {
  int axis = static_cast<int>(sample.attributes.as<ConcatAttributes>().axis);
  std::vector<ReferenceTensor> inputs;
  int64_t extent = 0;
  for (const Tensor& tensor : sample.inputs) {
    inputs.push_back(reference_of(tensor));
    axis = axis < 0 ? axis + tensor.rank() : axis;
    extent += tensor.shape()[axis];
  }
  ReferenceTensor y(inputs[0].shape.with(axis, extent));
  const int64_t inner = y.shape.stride(axis);
  int64_t begin = 0;
  for (const ReferenceTensor& input : inputs) {
    const int64_t own = input.shape[axis];
    for (int64_t i = 0; i < input.shape.numel(); ++i) {
      const int64_t outer = i / (own * inner);
      y[(outer * extent + begin) * inner + i % (own * inner)] = input[i];
    }
    begin += own;
  }
  return {y};
}

}  // namespace

void register_concat_samples(SampleRegistry& registry);
void register_concat_samples(SampleRegistry& registry) {
  registry.add({.op = "concat", .make = make_concat, .reference = concat_reference});
}

}  // namespace sinter::ops
