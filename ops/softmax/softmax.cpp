#include <sinter/ops/binary/binary.h>
#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_softmax(const InferContext& context) {
  context.expect_float(0);
  normalize_axis(context.attributes<SoftmaxAttributes>().axis, context.shape(0).rank(), context.tag());
  return {context.input(0)};
}

std::vector<TensorSpec> infer_softmax_grad(const InferContext& context) {
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  return infer_softmax(context);
}

std::vector<Tensor> softmax_gradient(const GradientContext& context) {
  return {vjp::softmax(context.grad(), context.output(0), context.attributes<SoftmaxAttributes>().axis)};
}

std::vector<Tensor> log_softmax_gradient(const GradientContext& context) {
  return {vjp::log_softmax(context.grad(), context.output(0), context.attributes<SoftmaxAttributes>().axis)};
}

// dx = y (dy - sum(y dy)), which is its own transpose in dy.
std::vector<Tensor> softmax_grad_gradient(const GradientContext& context) {
  const int64_t axis = context.attributes<SoftmaxAttributes>().axis;
  const Tensor y = context.input(0), ddx = context.grad();
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) {
    const Tensor dy = context.input(1), along = sum(mul(y, dy), {axis}, {.keep_dims = true});
    gradients[0] = sub(mul(ddx, sub(dy, along)), mul(dy, sum(mul(ddx, y), {axis}, {.keep_dims = true})));
  }
  if (context.needs(1)) gradients[1] = vjp::softmax(ddx, y, axis);
  return gradients;
}

// dx = dy - exp(y) sum(dy).
std::vector<Tensor> log_softmax_grad_gradient(const GradientContext& context) {
  const int64_t axis = context.attributes<SoftmaxAttributes>().axis;
  const Tensor ddx = context.grad(), weighted = mul(ddx, exp(context.input(0)));
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) gradients[0] = neg(mul(weighted, sum(context.input(1), {axis}, {.keep_dims = true})));
  if (context.needs(1)) gradients[1] = sub(ddx, sum(weighted, {axis}, {.keep_dims = true}));
  return gradients;
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t axis) {
  static const Op& op = builtin("softmax");
  return call_single(op, {x}, SoftmaxAttributes{normalize_axis(axis, x.rank(), "softmax")});
}

Tensor log_softmax(const Tensor& x, int64_t axis) {
  static const Op& op = builtin("log_softmax");
  return call_single(op, {x}, SoftmaxAttributes{normalize_axis(axis, x.rank(), "log_softmax")});
}

Tensor vjp::softmax(const Tensor& dy, const Tensor& y, int64_t axis) {
  static const Op& op = builtin("softmax_grad");
  return call_single(op, {y, dy}, SoftmaxAttributes{normalize_axis(axis, y.rank(), "softmax_grad")});
}

Tensor vjp::log_softmax(const Tensor& dy, const Tensor& y, int64_t axis) {
  static const Op& op = builtin("log_softmax_grad");
  return call_single(op, {y, dy}, SoftmaxAttributes{normalize_axis(axis, y.rank(), "log_softmax_grad")});
}

void register_softmax(OpRegistry& registry);
void register_softmax(OpRegistry& registry) {
  registry.add({.name = "softmax",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_softmax,
                .gradient = softmax_gradient,
                .gradient_reads = {.outputs = reads_of({0})},
                .traits = {.precision = Precision::kFloat32,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_axis}}});
  registry.add({.name = "log_softmax",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_softmax,
                .gradient = log_softmax_gradient,
                .gradient_reads = {.outputs = reads_of({0})},
                .traits = {.precision = Precision::kFloat32,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_axis}}});
  const auto define_gradient = [&](const char* name, OpDef::Gradient gradient) {
    registry.add({.name = name,
                  .inputs = {{"y"}, {"dy"}},
                  .outputs = {{"dx"}},
                  .infer = infer_softmax_grad,
                  .gradient = gradient,
                  .gradient_reads = {.inputs = reads_of({0, 1})}});
  };
  define_gradient("softmax_grad", softmax_grad_gradient);
  define_gradient("log_softmax_grad", log_softmax_grad_gradient);
}

}  // namespace sinter::ops
