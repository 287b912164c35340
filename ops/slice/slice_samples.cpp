#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::ops {
namespace {

OpSample make_slice(SampleMaker& maker) {
  const int rank = static_cast<int>(maker.integer(1, 4));
  const Shape shape = maker.shape(rank);
  const int64_t axis = maker.integer(0, rank - 1);
  const int64_t extent = shape[static_cast<int>(axis)];
  int64_t begin = maker.integer(0, extent);
  int64_t end = maker.integer(begin, extent);
  if (begin < extent && maker.chance(0.2)) begin -= extent;
  if (end < extent && maker.chance(0.2)) end -= extent;
  return {{maker.tensor(shape)}, SliceAttributes{maker.chance(0.3) ? axis - rank : axis, begin, end}};
}

std::vector<ReferenceTensor> slice_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const auto& slice = sample.attributes.as<SliceAttributes>();
  const int axis = static_cast<int>(slice.axis < 0 ? slice.axis + x.shape.rank() : slice.axis);
  const int64_t extent = x.shape[axis];
  const int64_t begin = slice.begin < 0 ? slice.begin + extent : slice.begin;
  const int64_t end = slice.end < 0 ? slice.end + extent : slice.end;
  ReferenceTensor y(x.shape.with(axis, end - begin));
  y.values.clear();
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const int64_t at = i / x.shape.stride(axis) % extent;
    if (at >= begin && at < end) y.values.push_back(x[i]);
  }
  return {y};
}

}  // namespace

void register_slice_samples(SampleRegistry& registry);
void register_slice_samples(SampleRegistry& registry) {
  registry.add({.op = "slice", .make = make_slice, .reference = slice_reference});
}

}  // namespace sinter::ops
