#include <sinter/ops/affine/affine_math.h>
#include <sinter/ops/common/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_affine(SampleMaker& maker) {
  const Shape shape = maker.chance(0.1) ? Shape{maker.integer(500, 1500)} : maker.shape(3);
  return {{maker.tensor(shape)},
          AffineAttributes{maker.uniform(-3, 3), maker.chance(0.5) ? 0.0 : maker.uniform(-3, 3)}};
}

std::vector<ReferenceTensor> affine_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<AffineAttributes>();
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) value = attributes.scale * value + attributes.shift;
  return {y};
}

}  // namespace

void register_affine_samples(SampleRegistry& registry);
void register_affine_samples(SampleRegistry& registry) {
  registry.add({.op = "affine", .make = make_affine, .reference = affine_reference});
}

}  // namespace sinter::ops
