#include <sinter/ops/common/op_support.h>
#include <sinter/ops/relu/relu.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_relu(const InferContext& context) {
  context.expect_float(0);
  return {context.input(0)};
}

std::vector<Tensor> relu_gradient(const GradientContext& context) {
  return {relu_grad(context.output(0), context.grad())};
}

std::vector<TensorSpec> infer_relu_grad(const InferContext& context) {
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  return {context.input(0)};
}

}  // namespace

Tensor relu(const Tensor& x) {
  static const Op& op = builtin("relu");
  return call_single(op, {x});
}

Tensor relu_grad(const Tensor& y, const Tensor& dy) {
  static const Op& op = builtin("relu_grad");
  return call_single(op, {y, dy});
}

void register_relu(OpRegistry& registry);
void register_relu(OpRegistry& registry) {
  registry.add({.name = "relu",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_relu,
                .gradient = relu_gradient,
                .gradient_reads = {.outputs = reads_of({0})}});
  registry.add(
      {.name = "relu_grad", .inputs = {{"y"}, {"dy"}}, .outputs = {{"dx"}}, .infer = infer_relu_grad});
}

}  // namespace sinter::ops
