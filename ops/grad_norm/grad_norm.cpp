#include <sinter/ops/common/op_support.h>
#include <sinter/ops/grad_norm/grad_norm.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_grad_norm(const InferContext& context) {
  for (size_t i = 0; i < context.input_count(); ++i) context.expect_float(i);
  return {{Shape{}, DType::kFloat64, context.input(0).device}};
}

}  // namespace

Tensor update::grad_norm(std::span<const Tensor> gradients) {
  static const Op& op = builtin("grad_norm");
  return std::move(call(op, gradients).front());
}

void register_grad_norm(OpRegistry& registry);
void register_grad_norm(OpRegistry& registry) {
  registry.add({.name = "grad_norm",
                .inputs = {{"gradient"}},
                .variadic = true,
                .outputs = {{.name = "norm", .differentiable = false}},
                .infer = infer_grad_norm});
}

}  // namespace sinter::ops
