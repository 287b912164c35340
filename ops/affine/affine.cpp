#include <cmath>

#include <sinter/ops/affine/affine.h>
#include <sinter/ops/affine/affine_math.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

/// A whole number that an int64 holds.
bool is_integer(double value) {
  return value == std::trunc(value) && value >= -0x1p63 && value < 0x1p63;
}

std::vector<TensorSpec> infer_affine(const InferContext& context) {
  expect_number(context, 0);
  const auto& attributes = context.attributes<AffineAttributes>();
  SINTER_CHECK(
      is_float(context.input(0).dtype) || (is_integer(attributes.scale) && is_integer(attributes.shift)),
      "[affine] expected whole numbers as scale and shift of an {} tensor but got {} and {}",
      context.input(0).dtype, attributes.scale, attributes.shift);
  return {context.input(0)};
}

std::vector<Tensor> affine_gradient(const GradientContext& context) {
  return {affine(context.grad(), context.attributes<AffineAttributes>().scale, 0.0)};
}

}  // namespace

Tensor affine(const Tensor& x, double scale, double shift) {
  static const Op& op = builtin("affine");
  return call_single(op, {x}, AffineAttributes{scale, shift});
}

void register_affine(OpRegistry& registry);
void register_affine(OpRegistry& registry) {
  registry.add({.name = "affine",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_affine,
                .gradient = affine_gradient});
}

}  // namespace sinter::ops
