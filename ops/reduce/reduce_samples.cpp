#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::ops {
namespace {

Shape draw_shape(SampleMaker& maker) {
  if (maker.chance(0.05)) return Shape{maker.integer(1, 3), maker.integer(20000, 40000)};
  if (maker.chance(0.05))
    return Shape{maker.integer(100, 200), maker.integer(1, 2), maker.integer(200, 1500)};
  return maker.shape(static_cast<int>(maker.integer(0, 5)), 7);
}

Shape draw_filled_shape(SampleMaker& maker) {
  Shape shape = draw_shape(maker);
  while (shape.numel() == 0) shape = draw_shape(maker);
  return shape;
}

ReduceAttributes draw_axes(SampleMaker& maker, const Shape& shape) {
  ReduceAttributes attributes;
  attributes.keep_dims = maker.chance(0.5);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (maker.chance(0.5)) attributes.axes.push_back(maker.chance(0.5) ? axis : axis - shape.rank());
  }
  return attributes;
}

/// The element of the result that element `flat` of a tensor of `shape` goes into, and the shape of the
/// result.
int64_t result_index(const Shape& shape, const std::vector<bool>& reduced, int64_t flat) {
  const std::vector<int64_t> index = unravel(shape, flat);
  int64_t result = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!reduced[static_cast<size_t>(axis)]) result = result * shape[axis] + index[static_cast<size_t>(axis)];
  }
  return result;
}

std::vector<bool> reduced_flags(const Shape& shape, const ReduceAttributes& attributes) {
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()), attributes.axes.empty());
  for (int64_t axis : attributes.axes)
    reduced[static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis)] = true;
  return reduced;
}

Shape result_shape(const Shape& shape, const ReduceAttributes& attributes) {
  const std::vector<bool> reduced = reduced_flags(shape, attributes);
  std::vector<int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!reduced[static_cast<size_t>(axis)]) extents.push_back(shape[axis]);
    if (reduced[static_cast<size_t>(axis)] && attributes.keep_dims) extents.push_back(1);
  }
  return Shape(extents);
}

OpSample make_sum(SampleMaker& maker) {
  const Shape shape = draw_shape(maker);
  return {{maker.tensor(shape)}, draw_axes(maker, shape)};
}

template <bool kMean>
std::vector<ReferenceTensor> sum_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<ReduceAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const std::vector<bool> reduced = reduced_flags(x.shape, attributes);
  ReferenceTensor y(result_shape(x.shape, attributes));
  for (int64_t i = 0; i < x.shape.numel(); ++i) y[result_index(x.shape, reduced, i)] += x[i];
  if (kMean) {
    double terms = 1.0;
    for (size_t axis = 0; axis < reduced.size(); ++axis) {
      if (reduced[axis]) terms *= static_cast<double>(x.shape[static_cast<int>(axis)]);
    }
    for (double& value : y.values) value /= terms;
  }
  return {y};
}

OpSample make_extreme(SampleMaker& maker) {
  const Shape shape = draw_filled_shape(maker);
  return {{maker.distinct(shape)}, draw_axes(maker, shape)};
}

/// The flat index of the first extreme element of each group.
template <int kSign>
std::vector<int64_t> extreme_places(const ReferenceTensor& x, const ReduceAttributes& attributes) {
  const std::vector<bool> reduced = reduced_flags(x.shape, attributes);
  std::vector<int64_t> places(static_cast<size_t>(result_shape(x.shape, attributes).numel()), -1);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    int64_t& place = places[static_cast<size_t>(result_index(x.shape, reduced, i))];
    if (place < 0 || kSign * x[i] > kSign * x[place]) place = i;
  }
  return places;
}

template <int kSign>
std::vector<ReferenceTensor> extreme_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<ReduceAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor y(result_shape(x.shape, attributes));
  const std::vector<int64_t> places = extreme_places<kSign>(x, attributes);
  for (size_t i = 0; i < places.size(); ++i) y.values[i] = x[places[i]];
  return {y};
}

OpSample make_extreme_grad(SampleMaker& maker) {
  const Shape shape = draw_filled_shape(maker);
  const ReduceAttributes attributes = draw_axes(maker, shape);
  return {{maker.distinct(shape), maker.tensor(result_shape(shape, attributes))}, attributes};
}

template <int kSign>
std::vector<ReferenceTensor> extreme_grad_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]), dy = reference_of(sample.inputs[1]);
  const std::vector<int64_t> places = extreme_places<kSign>(x, sample.attributes.as<ReduceAttributes>());
  ReferenceTensor dx(x.shape);
  for (size_t i = 0; i < places.size(); ++i) dx[places[i]] = dy.values[i];
  return {dx};
}

/// `shape` without some leading axes and with extents of 1 here and there: what can be broadcast to it.
Shape thinned(SampleMaker& maker, Shape shape) {
  for (int64_t drop = maker.chance(0.5) ? maker.integer(0, shape.rank()) : 0; drop > 0; --drop)
    shape = shape.without(0);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (maker.chance(0.4)) shape = shape.with(axis, 1);
  }
  return shape;
}

ShapeAttributes attributes_of(const Shape& shape) {
  return {{shape.begin(), shape.end()}};
}

OpSample make_sum_to(SampleMaker& maker) {
  const Shape shape = draw_shape(maker);
  return {{maker.tensor(shape)}, attributes_of(thinned(maker, shape))};
}

std::vector<ReferenceTensor> sum_to_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor y{Shape(sample.attributes.as<ShapeAttributes>().shape)};
  for (int64_t i = 0; i < x.shape.numel(); ++i) y[broadcast_index(x.shape, y.shape, i)] += x[i];
  return {y};
}

/// The rounding of a sum of n values of about 1 grows as the root of n; `kMean`: and is divided by n.
template <std::vector<ReferenceTensor> (*kReference)(const OpSample&), bool kMean = false>
double sum_terms(const OpSample& sample, size_t) {
  const int64_t results = kReference(sample)[0].shape.numel();
  if (sample.inputs[0].numel() == 0 || results == 0) return 0.0;
  const double terms = static_cast<double>(sample.inputs[0].numel()) / static_cast<double>(results);
  return kMean ? 1.0 / std::sqrt(terms) : std::sqrt(terms);
}

OpSample make_broadcast_to(SampleMaker& maker) {
  const Shape shape = draw_shape(maker);
  return {{maker.tensor(thinned(maker, shape))}, attributes_of(shape)};
}

std::vector<ReferenceTensor> broadcast_to_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor y{Shape(sample.attributes.as<ShapeAttributes>().shape)};
  for (int64_t i = 0; i < y.shape.numel(); ++i) y[i] = x[broadcast_index(y.shape, x.shape, i)];
  return {y};
}

}  // namespace

void register_reduce_samples(SampleRegistry& registry);
void register_reduce_samples(SampleRegistry& registry) {
  registry.add({.op = "sum",
                .make = make_sum,
                .reference = sum_reference<false>,
                .term_size = sum_terms<sum_reference<false>>});
  registry.add({.op = "mean",
                .make = make_sum,
                .reference = sum_reference<true>,
                .term_size = sum_terms<sum_reference<true>, true>});
  registry.add({.op = "max", .make = make_extreme, .reference = extreme_reference<1>});
  registry.add({.op = "min", .make = make_extreme, .reference = extreme_reference<-1>});
  registry.add({.op = "max_grad", .make = make_extreme_grad, .reference = extreme_grad_reference<1>});
  registry.add({.op = "min_grad", .make = make_extreme_grad, .reference = extreme_grad_reference<-1>});
  registry.add({.op = "sum_to",
                .make = make_sum_to,
                .reference = sum_to_reference,
                .term_size = sum_terms<sum_to_reference>});
  registry.add({.op = "broadcast_to", .make = make_broadcast_to, .reference = broadcast_to_reference});
}

}  // namespace sinter::ops
