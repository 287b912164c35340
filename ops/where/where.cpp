#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_where(const InferContext& context) {
  context.expect_dtype(0, DType::kBool);
  context.expect_same_dtype(2, 1);
  const Shape chosen = broadcast_shapes(context.shape(1), context.shape(2), context.tag());
  return {{broadcast_shapes(context.shape(0), chosen, context.tag()), context.input(1).dtype,
           context.input(1).device}};
}

Tensor number(double value, const Tensor& like) {
  return full({}, value, like.dtype(), like.device());
}

std::vector<Tensor> where_gradient(const GradientContext& context) {
  const Tensor condition = context.input(0), dy = context.grad();
  return {Tensor(),
          context.needs(1) ? sum_to(where(condition, dy, 0.0), context.input_spec(1).shape) : Tensor(),
          context.needs(2) ? sum_to(where(condition, 0.0, dy), context.input_spec(2).shape) : Tensor()};
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("where");
  return call_single(op, {condition, a, b});
}

Tensor where(const Tensor& condition, const Tensor& a, double b) {
  return where(condition, a, number(b, a));
}

Tensor where(const Tensor& condition, double a, const Tensor& b) {
  return where(condition, number(a, b), b);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  return where(mask, value, x);
}

void register_where(OpRegistry& registry);
void register_where(OpRegistry& registry) {
  registry.add({.name = "where",
                .inputs = {{"condition"}, {"a"}, {"b"}},
                .outputs = {{"y"}},
                .infer = infer_where,
                .gradient = where_gradient,
                .gradient_reads = {.inputs = reads_of({0})},
                .traits = {.elementwise = true,
                           .precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder}}});
}

}  // namespace sinter::ops
