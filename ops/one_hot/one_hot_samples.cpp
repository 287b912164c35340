#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/one_hot/one_hot.h>

namespace sinter::ops {
namespace {

OpSample make_one_hot(SampleMaker& maker) {
  const int64_t classes = maker.chance(0.1) ? maker.integer(100, 1000) : maker.integer(1, 9);
  const Shape shape = maker.shape(static_cast<int>(maker.integer(0, 3)));
  return {{maker.indices(shape, 0, classes - 1)}, OneHotAttributes{classes, maker.dtype()}};
}

std::vector<ReferenceTensor> one_hot_reference(const OpSample& sample) {
  const int64_t classes = sample.attributes.as<OneHotAttributes>().classes;
  const ReferenceTensor labels = reference_of(sample.inputs[0]);
  ReferenceTensor y(labels.shape.inserted(labels.shape.rank(), classes));
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    y[i] = labels[i / classes] == static_cast<double>(i % classes) ? 1.0 : 0.0;
  }
  return {y};
}

}  // namespace

void register_one_hot_samples(SampleRegistry& registry);
void register_one_hot_samples(SampleRegistry& registry) {
  registry.add({.op = "one_hot",
                .make = make_one_hot,
                .reference = one_hot_reference,
                .dtypes = {std::begin(kAllDTypes), std::end(kAllDTypes)},
                .check_gradient = false});
}

}  // namespace sinter::ops
