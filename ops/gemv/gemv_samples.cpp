#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>

namespace sinter::ops {
namespace {

int64_t extent(SampleMaker& maker) {
  return maker.chance(0.04) ? 0 : maker.integer(1, maker.chance(0.15) ? 90 : 7);
}

/// Batch axes for two sides that broadcast together: at most one axis of each is 1 or missing.
std::pair<std::vector<int64_t>, std::vector<int64_t>> batches(SampleMaker& maker) {
  std::vector<int64_t> first, second;
  const int64_t outer_extent = maker.integer(1, 3), inner_extent = maker.integer(1, 4);
  switch (maker.integer(0, 4)) {
    case 0:
      break;
    case 1:
      first = second = {inner_extent};
      break;
    case 2:
      first = {outer_extent, inner_extent};
      second = {inner_extent};
      break;
    case 3:
      first = {outer_extent, 1};
      second = {1, inner_extent};
      break;
    default:
      second = {outer_extent, inner_extent};
  }
  return {first, second};
}

Shape with_axes(std::vector<int64_t> batch, std::initializer_list<int64_t> axes) {
  batch.insert(batch.end(), axes);
  return Shape(batch);
}

/// The batch of a call, and for each of its items the items of both sides, by plain counting.
struct BatchPairs {
  Shape shape;
  std::vector<std::pair<int64_t, int64_t>> items;

  BatchPairs(const Shape& a, const Shape& b) : shape(broadcast_shapes(a, b, "reference")) {
    const auto index_in = [&](const Shape& side, int64_t item) {
      int64_t index = 0;
      for (int axis = 0; axis < side.rank(); ++axis) {
        const int there = axis + shape.rank() - side.rank();
        const int64_t position = item / shape.stride(there) % shape[there];
        index += side[axis] == 1 ? 0 : position * side.stride(axis);
      }
      return index;
    };
    for (int64_t item = 0; item < shape.numel(); ++item)
      items.emplace_back(index_in(a, item), index_in(b, item));
  }
};

OpSample make_matvec(SampleMaker& maker) {
  const MatvecOptions attributes{maker.chance(0.5)};
  const auto [a, x] = batches(maker);
  const int64_t rows = extent(maker), columns = extent(maker);
  return {{maker.tensor(with_axes(a, {rows, columns})),
           maker.tensor(with_axes(x, {attributes.transpose_a ? rows : columns}))},
          attributes};
}

std::vector<ReferenceTensor> matvec_reference(const OpSample& sample) {
  const bool transpose = sample.attributes.as<MatvecOptions>().transpose_a;
  const ReferenceTensor a = reference_of(sample.inputs[0]), x = reference_of(sample.inputs[1]);
  const int64_t rows = a.shape[-2], columns = a.shape[-1];
  const int64_t out = transpose ? columns : rows, in = transpose ? rows : columns;
  const BatchPairs batch(batch_shape(a.shape, 2), batch_shape(x.shape, 1));
  ReferenceTensor y(batch.shape.inserted(batch.shape.rank(), out));
  for (int64_t item = 0; item < batch.shape.numel(); ++item) {
    const auto [matrix, vector] = batch.items[static_cast<size_t>(item)];
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        const int64_t element = transpose ? i * columns + o : o * columns + i;
        y[item * out + o] += a[matrix * rows * columns + element] * x[vector * in + i];
      }
    }
  }
  return {y};
}

OpSample make_outer(SampleMaker& maker) {
  const auto [u, v] = batches(maker);
  return {{maker.tensor(with_axes(u, {extent(maker)})), maker.tensor(with_axes(v, {extent(maker)}))}, {}};
}

std::vector<ReferenceTensor> outer_reference(const OpSample& sample) {
  const ReferenceTensor u = reference_of(sample.inputs[0]), v = reference_of(sample.inputs[1]);
  const int64_t m = u.shape[-1], n = v.shape[-1];
  const BatchPairs batch(batch_shape(u.shape, 1), batch_shape(v.shape, 1));
  ReferenceTensor y(batch.shape.inserted(batch.shape.rank(), m).inserted(batch.shape.rank() + 1, n));
  for (int64_t item = 0; item < batch.shape.numel(); ++item) {
    const auto [first, second] = batch.items[static_cast<size_t>(item)];
    for (int64_t i = 0; i < m * n; ++i) y[item * m * n + i] = u[first * m + i / n] * v[second * n + i % n];
  }
  return {y};
}

}  // namespace

void register_gemv_samples(SampleRegistry& registry);
void register_gemv_samples(SampleRegistry& registry) {
  registry.add({.op = "matvec",
                .make = make_matvec,
                .reference = matvec_reference,
                .term_size = product_terms<matvec_reference>});
  registry.add({.op = "outer", .make = make_outer, .reference = outer_reference});
}

}  // namespace sinter::ops
