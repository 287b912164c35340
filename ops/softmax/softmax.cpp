#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/softmax/softmax.h>

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
  return {softmax_grad(context.output(0), context.grad(), context.attributes<SoftmaxAttributes>().axis)};
}

std::vector<Tensor> log_softmax_gradient(const GradientContext& context) {
  return {log_softmax_grad(context.output(0), context.grad(), context.attributes<SoftmaxAttributes>().axis)};
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

Tensor softmax_grad(const Tensor& y, const Tensor& dy, int64_t axis) {
  static const Op& op = builtin("softmax_grad");
  return call_single(op, {y, dy}, SoftmaxAttributes{normalize_axis(axis, y.rank(), "softmax_grad")});
}

Tensor log_softmax_grad(const Tensor& y, const Tensor& dy, int64_t axis) {
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
  for (const char* name : {"softmax_grad", "log_softmax_grad"}) {
    registry.add({.name = name, .inputs = {{"y"}, {"dy"}}, .outputs = {{"dx"}}, .infer = infer_softmax_grad});
  }
}

}  // namespace sinter::ops
