#include <sinter/ops/argmax/argmax_attributes.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_argmax(SampleMaker& maker) {
  Shape shape = maker.chance(0.1) ? Shape{maker.integer(1, 20), maker.integer(500, 1100)}
                                  : maker.shape(static_cast<int>(maker.integer(1, 4)));
  const auto axis = static_cast<int>(maker.integer(0, shape.rank() - 1));
  if (shape[axis] == 0) shape = shape.with(axis, 3);
  return {{maker.tensor(shape)},
          ArgmaxAttributes{maker.chance(0.5) ? axis : axis - shape.rank(), maker.chance(0.5)}};
}

std::vector<ReferenceTensor> argmax_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<ArgmaxAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const int axis = static_cast<int>(attributes.axis < 0 ? attributes.axis + x.shape.rank() : attributes.axis);
  ReferenceTensor y(attributes.keep_dims ? x.shape.with(axis, 1) : x.shape.without(axis));
  const int64_t inner = x.shape.stride(axis);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t first = i / inner * inner * x.shape[axis] + i % inner;
    int64_t best = 0;
    for (int64_t j = 0; j < x.shape[axis]; ++j)
      best = x[first + j * inner] > x[first + best * inner] ? j : best;
    y[i] = static_cast<double>(best);
  }
  return {y};
}

}  // namespace

void register_argmax_samples(SampleRegistry& registry);
void register_argmax_samples(SampleRegistry& registry) {
  registry.add({.op = "argmax", .make = make_argmax, .reference = argmax_reference, .check_gradient = false});
}

}  // namespace sinter::ops
