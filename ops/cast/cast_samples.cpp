#include <cmath>

#include <sinter/ops/cast/cast_math.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

// float64 stays float64: the gradient check works in it, and its finite differences would see the rounding.
OpSample make_cast(SampleMaker& maker) {
  const Shape shape = maker.chance(0.1) ? Shape{maker.integer(500, 1500)} : maker.shape(2);
  if (maker.dtype() == DType::kFloat64) return {{maker.tensor(shape)}, CastAttributes{DType::kFloat64}};
  const DType to = maker.pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                               DType::kInt64, DType::kInt32, DType::kUInt8, DType::kBool});
  Tensor x = maker.chance(0.3) ? maker.indices(shape, 0, 255) : maker.tensor(shape, -30, 30);
  return {{x}, CastAttributes{to}};
}

std::vector<ReferenceTensor> cast_reference(const OpSample& sample) {
  const DType to = sample.attributes.as<CastAttributes>().dtype;
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (double& value : y.values) {
    if (to == DType::kBool) {
      value = value == 0.0 ? 0.0 : 1.0;
    } else if (!is_float(to)) {
      value = std::trunc(value);
      if (to == DType::kUInt8 && value < 0) value = 0.0;
    }
  }
  return {y};
}

}  // namespace

void register_cast_samples(SampleRegistry& registry);
void register_cast_samples(SampleRegistry& registry) {
  registry.add({.op = "cast", .make = make_cast, .reference = cast_reference});
}

}  // namespace sinter::ops
