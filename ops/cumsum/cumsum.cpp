#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/cumsum/cumsum.h>

namespace sinter::ops {
namespace {

Tensor call_cumsum(const Tensor& x, const CumsumAttributes& attributes) {
  static const Op& op = builtin("cumsum");
  return call_single(op, {x}, attributes);
}

std::vector<TensorSpec> infer_cumsum(const InferContext& context) {
  const auto& [shape, dtype, device] = context.input(0);
  normalize_axis(context.attributes<CumsumAttributes>().axis, shape.rank(), context.tag());
  return {{shape, is_float(dtype) ? dtype : DType::kInt64, device}};
}

std::vector<Tensor> cumsum_gradient(const GradientContext& context) {
  const auto& [axis, reverse] = context.attributes<CumsumAttributes>();
  return {call_cumsum(context.grad(), {axis, !reverse})};
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t axis) {
  return call_cumsum(x, {axis});
}

void register_cumsum(OpRegistry& registry);
void register_cumsum(OpRegistry& registry) {
  registry.add({.name = "cumsum",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_cumsum,
                .gradient = cumsum_gradient,
                .traits = {.precision = Precision::kFloat32,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_axis}}});
}

}  // namespace sinter::ops
