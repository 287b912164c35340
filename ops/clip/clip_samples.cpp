#include <sinter/ops/clip/clip_math.h>
#include <sinter/ops/common/op_samples.h>

namespace sinter::ops {
namespace {

// The bounds are drawn from numbers that every dtype represents, and x keeps away from all of them.
ClipAttributes draw_bounds(SampleMaker& maker) {
  ClipAttributes attributes;
  if (maker.chance(0.8)) attributes.low = maker.pick({-1.5, -0.5, 0.0});
  if (maker.chance(0.8)) attributes.high = maker.pick({0.0, 0.5, 1.0});
  return attributes;
}

Tensor draw_x(SampleMaker& maker, const Shape& shape) {
  return maker.tensor_off(shape, {-1.5, -0.5, 0.0, 0.5, 1.0});
}

OpSample make_clip(SampleMaker& maker) {
  return {{draw_x(maker, maker.shape(3))}, draw_bounds(maker)};
}

std::vector<ReferenceTensor> clip_reference(const OpSample& sample) {
  const auto& bounds = sample.attributes.as<ClipAttributes>();
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) {
    if (value < bounds.low) value = bounds.low;
    if (value > bounds.high) value = bounds.high;
  }
  return {y};
}

OpSample make_clip_grad(SampleMaker& maker) {
  const Shape shape = maker.shape(2);
  return {{draw_x(maker, shape), maker.tensor(shape)}, draw_bounds(maker)};
}

std::vector<ReferenceTensor> clip_grad_reference(const OpSample& sample) {
  const auto& bounds = sample.attributes.as<ClipAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor dx = reference_of(sample.inputs[1]);
  for (size_t i = 0; i < dx.values.size(); ++i) {
    if (x.values[i] < bounds.low || x.values[i] > bounds.high) dx.values[i] = 0.0;
  }
  return {dx};
}

}  // namespace

void register_clip_samples(SampleRegistry& registry);
void register_clip_samples(SampleRegistry& registry) {
  registry.add({.op = "clip", .make = make_clip, .reference = clip_reference});
  registry.add(
      {.op = "clip_grad", .make = make_clip_grad, .reference = clip_grad_reference, .check_gradient = false});
}

}  // namespace sinter::ops
