#include <sinter/core/base/checked.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/fill/fill_attributes.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_fill(const InferContext& context) {
  check_holds(context.tag(), context.input(0).dtype, context.attributes<FillAttributes>().value);
  return {};
}

std::vector<TensorSpec> infer_full(const InferContext& context) {
  const auto& attributes = context.attributes<FullAttributes>();
  check_holds(context.tag(), attributes.dtype, attributes.value);
  return {{attributes.shape, attributes.dtype, attributes.device}};
}

}  // namespace

void fill_(const Tensor& target, double value) {
  static const Op& op = builtin("fill_");
  call(op, {target}, FillAttributes{value});
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  static const Op& op = builtin("full");
  return call_single(op, {},
                     FullAttributes{.value = value, .shape = shape, .dtype = dtype, .device = device});
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
  registry.add({.name = "full", .inputs = {}, .outputs = {{"y"}}, .infer = infer_full});
}

}  // namespace sinter::ops
