#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/topk/topk.h>
#include <sinter/ops/topk/topk_attributes.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_topk(const InferContext& context) {
  const auto& attributes = context.attributes<TopKAttributes>();
  const TensorSpec& x = context.input(0);
  const int axis = normalize_axis(attributes.axis, x.shape.rank(), context.tag());
  SINTER_CHECK(attributes.k >= 0 && attributes.k <= x.shape[axis],
               "[topk] expected k from 0 to {}, the extent of axis {}, but got {}", x.shape[axis], axis,
               attributes.k);
  const Shape shape = x.shape.with(axis, attributes.k);
  return {{shape, x.dtype, x.device}, {shape, DType::kInt64, x.device}};
}

std::vector<Tensor> topk_gradient(const GradientContext& context) {
  if (!context.grad(0).defined()) return {Tensor()};
  const Shape& x = context.input_spec(0).shape;
  const int axis = normalize_axis(context.attributes<TopKAttributes>().axis, x.rank(), "topk");
  return {vjp::topk(context.grad(0), context.output(1), x[axis], axis)};
}

std::vector<TensorSpec> infer_topk_grad(const InferContext& context) {
  const auto& attributes = context.attributes<TopKGradAttributes>();
  context.expect_dtype(0, DType::kInt64);
  context.expect_float(1);
  context.expect_shape(1, context.shape(0));
  const TensorSpec& dy = context.input(1);
  const int axis = normalize_axis(attributes.axis, dy.shape.rank(), context.tag());
  SINTER_CHECK(attributes.extent >= dy.shape[axis],
               "[topk_grad] expected an extent of at least {} but got {}", dy.shape[axis], attributes.extent);
  return {{dy.shape.with(axis, attributes.extent), dy.dtype, dy.device}};
}

std::vector<Tensor> topk_grad_gradient(const GradientContext& context) {
  return {Tensor(), gather(context.grad(), context.attributes<TopKGradAttributes>().axis, context.input(0))};
}

}  // namespace

TopK topk(const Tensor& x, int64_t k, int64_t axis) {
  static const Op& op = builtin("topk");
  std::vector<Tensor> outputs = call(op, {x}, TopKAttributes{k, axis});
  return {std::move(outputs[0]), std::move(outputs[1])};
}

Tensor vjp::topk(const Tensor& dy, const Tensor& indices, int64_t extent, int64_t axis) {
  static const Op& op = builtin("topk_grad");
  return call_single(op, {indices, dy}, TopKGradAttributes{extent, axis});
}

void register_topk(OpRegistry& registry);
void register_topk(OpRegistry& registry) {
  registry.add({.name = "topk",
                .inputs = {{"x"}},
                .outputs = {{"values"}, {.name = "indices", .differentiable = false}},
                .infer = infer_topk,
                .gradient = topk_gradient,
                .gradient_reads = {.outputs = reads_of({1})},
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_axis}}});
  registry.add({.name = "topk_grad",
                .inputs = {{"indices"}, {"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_topk_grad,
                .gradient = topk_grad_gradient,
                .gradient_reads = {.inputs = reads_of({0})}});
}

}  // namespace sinter::ops
