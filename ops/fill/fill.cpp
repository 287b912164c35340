#include <cmath>

#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/fill/fill_attributes.h>

namespace sinter::ops {
namespace {

/// Whether a tensor of `dtype` can hold the value as it is, or rounded if the dtype is a floating-point one.
bool can_hold(DType dtype, double value) {
  if (is_float(dtype)) return true;
  if (value != std::trunc(value)) return false;  // fractions; NaN too
  switch (dtype) {
    case DType::kInt64:
      return value >= -0x1p63 && value < 0x1p63;
    case DType::kInt32:
      return value >= -0x1p31 && value < 0x1p31;
    case DType::kUInt8:
      return value >= 0 && value <= 255;
    default:
      return value == 0 || value == 1;
  }
}

std::vector<TensorSpec> infer_fill(const InferContext& context) {
  const double value = context.attributes<FillAttributes>().value;
  SINTER_CHECK(can_hold(context.input(0).dtype, value),
               "[fill_] expected a value that {} can represent but got {}", context.input(0).dtype, value);
  return {};
}

}  // namespace

void fill_(const Tensor& target, double value) {
  static const Op& op = builtin("fill_");
  call(op, {target}, FillAttributes{value});
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor made = Tensor::empty(shape, dtype, device);
  fill_(made, value);
  return made;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0.0, dtype, device);
}

Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1.0, dtype, device);
}

Tensor full_like(const Tensor& x, double value) {
  return full(x.shape(), value, x.dtype(), x.device());
}

Tensor zeros_like(const Tensor& x) {
  return full_like(x, 0.0);
}

Tensor ones_like(const Tensor& x) {
  return full_like(x, 1.0);
}

void register_fill(OpRegistry& registry);
void register_fill(OpRegistry& registry) {
  registry.add({.name = "fill_", .inputs = {{.name = "target", .mutated = true}}, .infer = infer_fill});
}

}  // namespace sinter::ops
