#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cast/cast_math.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_cast(const InferContext& context) {
  TensorSpec spec = context.input(0);
  spec.dtype = context.attributes<CastAttributes>().dtype;
  return {spec};
}

std::vector<Tensor> cast_gradient(const GradientContext& context) {
  return {context.needs(0) ? cast(context.grad(), context.input_spec(0).dtype) : Tensor()};
}

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  static const Op& op = builtin("cast");
  if (x.dtype() == dtype) return x;
  return call_single(op, {x}, CastAttributes{dtype});
}

void register_cast(OpRegistry& registry);
void register_cast(OpRegistry& registry) {
  registry.add({.name = "cast",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_cast,
                .gradient = cast_gradient,
                .traits = {.layout = {.kind = LayoutRule::Kind::kAnyOrder}, .role = Role::kCast}});
}

}  // namespace sinter::ops
