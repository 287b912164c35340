#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/flip/flip.h>
#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_flip(const InferContext& context) {
  const auto& axes = context.attributes<FlipAttributes>().axes;
  SINTER_CHECK(!axes.empty(), "[flip] expected at least one axis but got none");
  reduced_axes(axes, context.shape(0).rank(), "flip");
  return {context.input(0)};
}

std::vector<Tensor> flip_gradient(const GradientContext& context) {
  return {flip(context.grad(), context.attributes<FlipAttributes>().axes)};
}

std::optional<Attributes> reorder_flip(const Attributes& attributes, std::span<const int64_t> order) {
  FlipAttributes flip = attributes.as<FlipAttributes>();
  for (int64_t& axis : flip.axes) axis = reordered_axis(axis, order);
  return flip;
}

}  // namespace

Tensor flip(const Tensor& x, std::vector<int64_t> axes) {
  static const Op& op = builtin("flip");
  return call_single(op, {x}, FlipAttributes{std::move(axes)});
}

void register_flip(OpRegistry& registry);
void register_flip(OpRegistry& registry) {
  registry.add({.name = "flip",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_flip,
                .gradient = flip_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_flip}}});
}

}  // namespace sinter::ops
