#include <utility>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/topk/topk_attributes.h>

namespace sinter::ops {
namespace {

int normalized(int64_t axis, const Shape& shape) {
  return static_cast<int>(axis < 0 ? axis + shape.rank() : axis);
}

Shape draw_shape(SampleMaker& maker) {
  return maker.chance(0.1) ? Shape{maker.integer(1, 40), maker.integer(400, 900)}
                           : maker.shape(static_cast<int>(maker.integer(1, 4)));
}

OpSample make_topk(SampleMaker& maker) {
  const Shape shape = draw_shape(maker);
  const int64_t axis = maker.integer(-shape.rank(), shape.rank() - 1);
  return {{maker.distinct(shape)}, TopKAttributes{maker.integer(0, shape[normalized(axis, shape)]), axis}};
}

/// Takes the largest element that is left, k times.
std::vector<ReferenceTensor> topk_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<TopKAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const int axis = normalized(attributes.axis, x.shape);
  const int64_t extent = x.shape[axis], inner = x.shape.stride(axis), k = attributes.k;
  ReferenceTensor values(x.shape.with(axis, k)), indices(x.shape.with(axis, k));
  const int64_t lines = extent > 0 ? x.shape.numel() / extent : 0;
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t outer = line / inner, offset = line % inner;
    std::vector<bool> taken(static_cast<size_t>(extent), false);
    for (int64_t i = 0; i < k; ++i) {
      int64_t best = -1;
      for (int64_t j = 0; j < extent; ++j) {
        const auto at = [&](int64_t place) { return x[(outer * extent + place) * inner + offset]; };
        if (!taken[static_cast<size_t>(j)] && (best < 0 || at(j) > at(best))) best = j;
      }
      taken[static_cast<size_t>(best)] = true;
      values[(outer * k + i) * inner + offset] = x[(outer * extent + best) * inner + offset];
      indices[(outer * k + i) * inner + offset] = static_cast<double>(best);
    }
  }
  return {values, indices};
}

OpSample make_topk_grad(SampleMaker& maker) {
  const Shape shape = maker.shape(static_cast<int>(maker.integer(1, 3)));  // of dx
  const int64_t axis = maker.integer(-shape.rank(), shape.rank() - 1);
  const int a = normalized(axis, shape);
  const int64_t extent = shape[a], k = maker.integer(0, extent), inner = shape.stride(a);
  const Shape chosen = shape.with(a, k);
  Tensor indices = maker.indices(chosen, 0, 0);
  for (int64_t line = 0; line < (k > 0 ? chosen.numel() / k : 0); ++line) {
    std::vector<int64_t> places(static_cast<size_t>(extent));
    for (size_t j = 0; j < places.size(); ++j) {
      places[j] = static_cast<int64_t>(j);
      std::swap(places[j], places[static_cast<size_t>(maker.integer(0, static_cast<int64_t>(j)))]);
    }
    for (int64_t i = 0; i < k; ++i) {
      indices.data<int64_t>()[(line / inner * k + i) * inner + line % inner] = places[static_cast<size_t>(i)];
    }
  }
  return {{indices, maker.tensor(chosen)}, TopKGradAttributes{extent, axis}};
}

std::vector<ReferenceTensor> topk_grad_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<TopKGradAttributes>();
  const ReferenceTensor indices = reference_of(sample.inputs[0]), dy = reference_of(sample.inputs[1]);
  const int axis = normalized(attributes.axis, dy.shape);
  const int64_t inner = dy.shape.stride(axis), k = dy.shape[axis];
  ReferenceTensor dx(dy.shape.with(axis, attributes.extent));
  for (int64_t i = 0; i < dy.shape.numel(); ++i) {
    const int64_t outer = i / inner / k;
    dx[(outer * attributes.extent + static_cast<int64_t>(indices[i])) * inner + i % inner] = dy[i];
  }
  return {dx};
}

}  // namespace

void register_topk_samples(SampleRegistry& registry);
void register_topk_samples(SampleRegistry& registry) {
  registry.add({.op = "topk", .make = make_topk, .reference = topk_reference});
  registry.add({.op = "topk_grad", .make = make_topk_grad, .reference = topk_grad_reference});
}

}  // namespace sinter::ops
