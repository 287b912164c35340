#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

/// Checks x and alpha (inputs 0 and 1).
void check_inputs(const InferContext& context) {
  context.expect_float(0);
  const DType dtype = context.input(0).dtype, slope_dtype = context.input(1).dtype;
  SINTER_CHECK(slope_dtype == dtype || slope_dtype == accumulate_dtype(dtype),
               "[{}] expected alpha of x's dtype{} but got {} beside an x of {}", context.tag(),
               is_half(dtype) ? " or float32" : "", slope_dtype, dtype);
  context.expect_rank(1, 1);
  const Shape& x = context.shape(0);
  SINTER_CHECK(x.rank() >= 1, "[{}] expected x of rank 1 or more but got shape {}", context.tag(), x);
  const bool last = x.rank() <= 2 || context.attributes<PReluAttributes>().layout == Layout::kNHWC;
  const int64_t channels = x[last ? -1 : 1], slopes = context.shape(1).numel();
  SINTER_CHECK(slopes == 1 || slopes == channels, "[{}] expected alpha of 1 or {} elements but got {}",
               context.tag(), channels, slopes);
}

std::vector<TensorSpec> infer_prelu(const InferContext& context) {
  check_inputs(context);
  return {context.input(0)};
}

/// Both gradients in ops that have gradients themselves.
std::vector<Tensor> composed_gradient(const GradientContext& context) {
  const Tensor x = context.input(0), alpha = context.input(1);
  const bool channels_last = context.attributes<PReluAttributes>().layout == Layout::kNHWC || x.rank() <= 2;
  const DType dtype = accumulate_dtype(x.dtype());
  std::vector<int64_t> extents(static_cast<size_t>(x.rank()), 1);
  extents[channels_last ? extents.size() - 1 : 1] = alpha.numel();
  const Tensor slope = cast(reshape(alpha, extents), dtype), dy = cast(context.grad(), dtype);
  const Tensor is_positive = greater(x, full({}, 0.0, x.dtype(), x.device()));
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) gradients[0] = cast(where(is_positive, dy, mul(dy, slope)), x.dtype());
  if (context.needs(1)) {
    const Tensor products = where(is_positive, 0.0, mul(cast(x, dtype), dy));
    gradients[1] = cast(reshape(sum_to(products, slope.shape()), {alpha.numel()}), alpha.dtype());
  }
  return gradients;
}

std::vector<Tensor> prelu_gradient(const GradientContext& context) {
  if (grad_enabled()) return composed_gradient(context);
  const Layout layout = context.attributes<PReluAttributes>().layout;
  if (!context.needs(1))
    return {vjp::prelu_x(context.grad(), context.input(0), context.input(1), layout), {}};
  const PReluGrads grads = vjp::prelu(context.grad(), context.input(0), context.input(1), layout);
  return {grads.dx, grads.dalpha};
}

std::vector<TensorSpec> infer_prelu_grad_x(const InferContext& context) {
  check_inputs(context);
  context.expect_same_dtype(2, 0);
  context.expect_shape(2, context.shape(0));
  return {context.input(0)};
}

std::vector<TensorSpec> infer_prelu_grad(const InferContext& context) {
  return {infer_prelu_grad_x(context).front(), context.input(1)};
}

}  // namespace

Tensor prelu(const Tensor& x, const Tensor& alpha, const LayoutOptions& options) {
  static const Op& op = builtin("prelu");
  return call_single(op, {x, alpha}, PReluAttributes{options.layout});
}

PReluGrads vjp::prelu(const Tensor& dy, const Tensor& x, const Tensor& alpha, Layout layout) {
  static const Op& op = builtin("prelu_grad");
  const std::vector<Tensor> grads = call(op, {x, alpha, dy}, PReluAttributes{layout});
  return {grads[0], grads[1]};
}

Tensor vjp::prelu_x(const Tensor& dy, const Tensor& x, const Tensor& alpha, Layout layout) {
  static const Op& op = builtin("prelu_grad_x");
  return call_single(op, {x, alpha, dy}, PReluAttributes{layout});
}

void register_prelu(OpRegistry& registry);
void register_prelu(OpRegistry& registry) {
  registry.add({.name = "prelu",
                .inputs = {{"x"}, {"alpha"}},
                .outputs = {{"y"}},
                .infer = infer_prelu,
                .gradient = prelu_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.elementwise = true,
                           .precision = Precision::kFollow,
                           .float32_inputs = reads_of({1}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})},
                           .role = Role::kPRelu}});
  registry.add({.name = "prelu_grad",
                .inputs = {{"x"}, {"alpha"}, {"dy"}},
                .outputs = {{"dx"}, {"dalpha"}},
                .infer = infer_prelu_grad,
                .choose = choose_by_time});
  registry.add({.name = "prelu_grad_x",
                .inputs = {{"x"}, {"alpha"}, {"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_prelu_grad_x,
                .traits = {.elementwise = true}});
}

}  // namespace sinter::ops
