#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gather/gather.h>

namespace sinter::ops {
namespace {

/// Checks `indices` (input i) against the shape that it picks from.
void check_gather(const InferContext& context, size_t i, const Shape& from, int64_t axis) {
  context.expect_dtype(i, DType::kInt64);
  context.expect_rank(i, from.rank());
  const int which = normalize_axis(axis, from.rank(), context.tag());
  for (int other = 0; other < from.rank(); ++other) {
    SINTER_CHECK(other == which || context.shape(i)[other] <= from[other],
                 "[{}] expected indices no larger than shape {} outside of axis {} but got shape {}",
                 context.tag(), from, which, context.shape(i));
  }
}

std::vector<TensorSpec> infer_gather(const InferContext& context) {
  const TensorSpec& x = context.input(0);
  check_gather(context, 1, x.shape, context.attributes<GatherAttributes>().axis);
  return {{context.shape(1), x.dtype, x.device}};
}

std::vector<Tensor> gather_gradient(const GradientContext& context) {
  return {vjp::gather(context.grad(), context.attributes<GatherAttributes>().axis, context.input(1),
                      context.input_spec(0).shape),
          {}};
}

std::vector<TensorSpec> infer_gather_grad(const InferContext& context) {
  const auto& attributes = context.attributes<GatherGradAttributes>();
  const TensorSpec& dy = context.input(0);
  context.expect_float(0);
  const Shape shape(attributes.extents);
  check_gather(context, 1, shape, attributes.axis);
  context.expect_shape(0, context.shape(1));
  return {{shape, dy.dtype, dy.device}};
}

std::vector<Tensor> gather_grad_gradient(const GradientContext& context) {
  return {gather(context.grad(), context.attributes<GatherGradAttributes>().axis, context.input(1)), {}};
}

}  // namespace

Tensor gather(const Tensor& x, int64_t axis, const Tensor& indices) {
  static const Op& op = builtin("gather");
  return call_single(op, {x, indices}, GatherAttributes{normalize_axis(axis, x.rank(), "gather")});
}

Tensor vjp::gather(const Tensor& dy, int64_t axis, const Tensor& indices, const Shape& shape) {
  static const Op& op = builtin("gather_grad");
  const int checked = normalize_axis(axis, shape.rank(), "gather_grad");
  return call_single(op, {dy, indices}, GatherGradAttributes{checked, {shape.begin(), shape.end()}});
}

void register_gather(OpRegistry& registry);
void register_gather(OpRegistry& registry) {
  registry.add({.name = "gather",
                .inputs = {{"x"}, {"indices"}},
                .outputs = {{"y"}},
                .infer = infer_gather,
                .gradient = gather_gradient,
                .gradient_reads = {.inputs = reads_of({1})},
                .traits = {.precision = Precision::kFollow}});
  registry.add({.name = "gather_grad",
                .inputs = {{"dy"}, {"indices"}},
                .outputs = {{"dx"}},
                .infer = infer_gather_grad,
                .gradient = gather_grad_gradient,
                .gradient_reads = {.inputs = reads_of({1})}});
}

}  // namespace sinter::ops
