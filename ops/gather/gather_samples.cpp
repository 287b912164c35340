#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/gather/gather.h>

namespace sinter::ops {
namespace {

struct Picking {
  Shape from, indices;
  int axis = 0;
  Tensor values;
};

Picking make_picking(SampleMaker& maker) {
  Picking made;
  const int rank = static_cast<int>(maker.integer(1, 4));
  made.from = maker.shape(rank, 6);
  made.axis = static_cast<int>(maker.integer(0, rank - 1));
  if (made.from[made.axis] == 0) made.from = made.from.with(made.axis, 1);
  made.indices = made.from.with(made.axis, maker.integer(0, 8));
  for (int i = 0; i < rank; ++i) {
    if (i != made.axis && maker.chance(0.3))
      made.indices = made.indices.with(i, maker.integer(0, made.from[i]));
  }
  made.values = maker.indices(made.indices, 0, made.from[made.axis] - 1);
  return made;
}

/// For every index, the element of the source that it picks.
std::vector<int64_t> places(const Tensor& indices, const Shape& from, int axis) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    int64_t place = 0;
    for (int j = 0; j < from.rank(); ++j) {
      const int64_t at = i / indices.shape().stride(j) % indices.shape()[j];
      place += (j == axis ? indices.data<int64_t>()[i] : at) * from.stride(j);
    }
    places.push_back(place);
  }
  return places;
}

OpSample make_gather(SampleMaker& maker) {
  const Picking made = make_picking(maker);
  const int axis = maker.chance(0.3) ? made.axis - made.from.rank() : made.axis;
  return {{maker.tensor(made.from), made.values}, GatherAttributes{axis}};
}

std::vector<ReferenceTensor> gather_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  int axis = static_cast<int>(sample.attributes.as<GatherAttributes>().axis);
  axis = axis < 0 ? axis + x.shape.rank() : axis;
  const std::vector<int64_t> from = places(sample.inputs[1], x.shape, axis);
  ReferenceTensor y(sample.inputs[1].shape());
  for (size_t i = 0; i < from.size(); ++i) y.values[i] = x[from[i]];
  return {y};
}

OpSample make_gather_grad(SampleMaker& maker) {
  const Picking made = make_picking(maker);
  return {{maker.tensor(made.indices), made.values},
          GatherGradAttributes{made.axis, {made.from.begin(), made.from.end()}}};
}

std::vector<ReferenceTensor> gather_grad_reference(const OpSample& sample) {
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  const auto& attributes = sample.attributes.as<GatherGradAttributes>();
  ReferenceTensor dx{Shape(attributes.extents)};
  const std::vector<int64_t> to = places(sample.inputs[1], dx.shape, static_cast<int>(attributes.axis));
  for (size_t i = 0; i < to.size(); ++i) dx[to[i]] += dy.values[i];
  return {dx};
}

}  // namespace

void register_gather_samples(SampleRegistry& registry);
void register_gather_samples(SampleRegistry& registry) {
  registry.add({.op = "gather", .make = make_gather, .reference = gather_reference});
  registry.add({.op = "gather_grad",
                .make = make_gather_grad,
                .reference = gather_grad_reference,
                .term_size = product_terms<gather_grad_reference>});
}

}  // namespace sinter::ops
