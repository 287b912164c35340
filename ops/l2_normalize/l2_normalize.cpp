#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

/// Checks the attributes for input 0; gives the spec of the norms.
TensorSpec norm_spec(const InferContext& context) {
  context.expect_float(0);
  const auto& attributes = context.attributes<L2NormalizeAttributes>();
  const TensorSpec& x = context.input(0);
  const int axis = normalize_axis(attributes.axis, x.shape.rank(), context.tag());
  SINTER_CHECK(attributes.epsilon > 0, "[{}] expected epsilon > 0 but got {}", context.tag(),
               attributes.epsilon);
  return {x.shape.without(axis), accumulate_dtype(x.dtype), x.device};
}

std::vector<TensorSpec> infer_l2_normalize(const InferContext& context) {
  const TensorSpec norm = norm_spec(context);
  return {context.input(0), norm};
}

/// The norms beside `y`, with the axis that they lack, in their own dtype, which y is cast to.
struct Lines {
  Lines(const Tensor& values, const Tensor& norms, const L2NormalizeAttributes& attributes)
      : axis(normalize_axis(attributes.axis, values.rank(), "l2_normalize")),
        y(cast(values, norms.dtype())),
        norm(unsqueeze(norms, axis)),
        is_clamped(less(norm, full({}, attributes.epsilon, norm.dtype(), norm.device()))) {}

  Tensor sum_of(const Tensor& products) const { return sum(products, {axis}, {.keep_dims = true}); }

  int64_t axis;
  Tensor y, norm, is_clamped;
};

// That of the norm itself is x / |x|: y, or where the norm is below epsilon, y epsilon / |x|, and 0 for
// zeros.
Tensor norm_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<L2NormalizeAttributes>();
  const Lines lines(context.output(0), context.output(1), attributes);
  const Tensor is_zero = equal(lines.norm, full({}, 0.0, lines.norm.dtype(), lines.norm.device()));
  const Tensor scale = affine(reciprocal(where(is_zero, HUGE_VAL, lines.norm)), attributes.epsilon, 0.0);
  const Tensor direction = mul(lines.y, where(lines.is_clamped, scale, 1.0));
  return cast(mul(unsqueeze(context.grad(1), lines.axis), direction), context.input_spec(0).dtype);
}

std::vector<Tensor> l2_normalize_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<L2NormalizeAttributes>();
  Tensor dx;
  if (context.grad(0).defined()) {
    dx = vjp::l2_normalize(context.grad(0), context.output(0), context.output(1), attributes.axis,
                           attributes.epsilon);
  }
  if (!context.grad(1).defined()) return {dx};
  return {dx.defined() ? add(dx, norm_gradient(context)) : norm_gradient(context)};
}

// dx = (dy - y sum(y dy)) / norm, which is its own transpose in dy; dy / epsilon where the norm is below
// that.
std::vector<Tensor> l2_normalize_grad_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<L2NormalizeAttributes>();
  const Tensor y = context.input(0), norms = context.input(1);
  std::vector<Tensor> gradients(3);
  if (context.needs(2))
    gradients[2] = vjp::l2_normalize(context.grad(), y, norms, attributes.axis, attributes.epsilon);
  if (!context.needs(0) && !context.needs(1)) return gradients;
  const Lines lines(y, norms, attributes);
  const Tensor dy = cast(context.input(2), norms.dtype());
  const Tensor scaled = where(lines.is_clamped, 0.0, div(cast(context.grad(), norms.dtype()), lines.norm));
  const Tensor along = lines.sum_of(mul(lines.y, dy));
  if (context.needs(0)) {
    const Tensor sums = add(mul(scaled, along), mul(dy, lines.sum_of(mul(lines.y, scaled))));
    gradients[0] = cast(neg(sums), y.dtype());
  }
  if (context.needs(1)) {
    const Tensor dx = div(sub(dy, mul(lines.y, along)), lines.norm);
    gradients[1] = neg(squeeze(lines.sum_of(mul(scaled, dx)), lines.axis));
  }
  return gradients;
}

std::vector<TensorSpec> infer_l2_normalize_grad(const InferContext& context) {
  const TensorSpec norm = norm_spec(context);
  context.expect_dtype(1, norm.dtype);
  context.expect_shape(1, norm.shape);
  context.expect_same_dtype(2, 0);
  context.expect_shape(2, context.shape(0));
  return {context.input(0)};
}

/// The norms are one axis less: the others must follow each other as before.
std::optional<Attributes> reorder_l2_normalize(const Attributes& attributes, std::span<const int64_t> order) {
  const int64_t axis = attributes.as<L2NormalizeAttributes>().axis;
  const auto rank = static_cast<int64_t>(order.size());
  std::array<bool, kMaxRank> mask{};
  mask[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  if (!keeps_order(mask, false, order)) return std::nullopt;
  return reorder_axis(attributes, order);
}

}  // namespace

Tensor l2_normalize(const Tensor& x, int64_t axis, double epsilon) {
  static const Op& op = builtin("l2_normalize");
  return call_single(op, {x}, L2NormalizeAttributes{normalize_axis(axis, x.rank(), "l2_normalize"), epsilon});
}

Tensor vjp::l2_normalize(const Tensor& dy, const Tensor& y, const Tensor& norm, int64_t axis,
                         double epsilon) {
  static const Op& op = builtin("l2_normalize_grad");
  const int checked = normalize_axis(axis, y.rank(), "l2_normalize_grad");
  return call_single(op, {y, norm, dy}, L2NormalizeAttributes{checked, epsilon});
}

void register_l2_normalize(OpRegistry& registry);
void register_l2_normalize(OpRegistry& registry) {
  registry.add(
      {.name = "l2_normalize",
       .inputs = {{"x"}},
       .outputs = {{"y"}, {"norm"}},
       .infer = infer_l2_normalize,
       .gradient = l2_normalize_gradient,
       .gradient_reads = {.outputs = reads_of({0, 1})},
       .traits = {.precision = Precision::kFollow,
                  .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_l2_normalize}}});
  registry.add({.name = "l2_normalize_grad",
                .inputs = {{"y"}, {"norm"}, {"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_l2_normalize_grad,
                .gradient = l2_normalize_grad_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1, 2})}});
}

}  // namespace sinter::ops
