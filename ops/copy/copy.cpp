#include <sinter/ops/common/op_support.h>
#include <sinter/ops/copy/copy.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_copy(const InferContext& context) {
  return {context.input(0)};
}

std::vector<Tensor> copy_gradient(const GradientContext& context) {
  return {context.grad()};
}

std::vector<TensorSpec> infer_copy_into(const InferContext& context) {
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  return {};
}

}  // namespace

Tensor copy(const Tensor& x) {
  static const Op& op = builtin("copy");
  return call_single(op, {x});
}

void copy_(const Tensor& target, const Tensor& source) {
  static const Op& op = builtin("copy_");
  call(op, {target, source});
}

void register_copy(OpRegistry& registry);
void register_copy(OpRegistry& registry) {
  registry.add(
      {.name = "copy",
       .inputs = {{"x"}},
       .outputs = {{"y"}},
       .infer = infer_copy,
       .gradient = copy_gradient,
       .traits = {.precision = Precision::kFollow, .layout = {.kind = LayoutRule::Kind::kAnyOrder}}});
  registry.add({.name = "copy_",
                .inputs = {{.name = "target", .mutated = true}, {"source"}},
                .infer = infer_copy_into});
}

}  // namespace sinter::ops
