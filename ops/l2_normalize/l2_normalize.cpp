#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>

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

std::vector<Tensor> l2_normalize_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<L2NormalizeAttributes>();
  return {l2_normalize_grad(context.output(0), context.output(1), context.grad(0), attributes.axis,
                            attributes.epsilon)};
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

Tensor l2_normalize_grad(const Tensor& y, const Tensor& norm, const Tensor& dy, int64_t axis,
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
       .outputs = {{"y"}, {.name = "norm", .differentiable = false}},
       .infer = infer_l2_normalize,
       .gradient = l2_normalize_gradient,
       .gradient_reads = {.outputs = reads_of({0, 1})},
       .traits = {.precision = Precision::kFollow,
                  .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_l2_normalize}}});
  registry.add({.name = "l2_normalize_grad",
                .inputs = {{"y"}, {"norm"}, {"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_l2_normalize_grad});
}

}  // namespace sinter::ops
