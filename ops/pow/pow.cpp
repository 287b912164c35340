#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pow/pow.h>
#include <sinter/ops/pow/pow_math.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_pow(const InferContext& context) {
  context.expect_float(0);
  return {context.input(0)};
}

std::vector<Tensor> pow_gradient(const GradientContext& context) {
  return {pow_grad(context.input(0), context.grad(), context.attributes<PowAttributes>().exponent)};
}

std::vector<TensorSpec> infer_pow_grad(const InferContext& context) {
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  return {context.input(0)};
}

}  // namespace

Tensor pow(const Tensor& x, double exponent) {
  static const Op& op = builtin("pow");
  return call_single(op, {x}, PowAttributes{exponent});
}

Tensor pow_grad(const Tensor& x, const Tensor& dy, double exponent) {
  static const Op& op = builtin("pow_grad");
  return call_single(op, {x, dy}, PowAttributes{exponent});
}

void register_pow(OpRegistry& registry);
void register_pow(OpRegistry& registry) {
  registry.add({.name = "pow",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_pow,
                .gradient = pow_gradient,
                .gradient_reads = {.inputs = reads_of({0})}});
  registry.add({.name = "pow_grad", .inputs = {{"x"}, {"dy"}}, .outputs = {{"dx"}}, .infer = infer_pow_grad});
}

}  // namespace sinter::ops
