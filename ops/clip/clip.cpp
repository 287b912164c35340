#include <sinter/ops/clip/clip.h>
#include <sinter/ops/clip/clip_math.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void check_bounds(const InferContext& context) {
  const auto& attributes = context.attributes<ClipAttributes>();
  SINTER_CHECK(attributes.low <= attributes.high, "[{}] expected low <= high but got {} and {}",
               context.tag(), attributes.low, attributes.high);
}

std::vector<TensorSpec> infer_clip(const InferContext& context) {
  expect_number(context, 0);
  check_bounds(context);
  return {context.input(0)};
}

std::vector<Tensor> clip_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<ClipAttributes>();
  return {clip_grad(context.input(0), context.grad(), attributes.low, attributes.high)};
}

std::vector<TensorSpec> infer_clip_grad(const InferContext& context) {
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  check_bounds(context);
  return {context.input(0)};
}

}  // namespace

Tensor clip(const Tensor& x, double low, double high) {
  static const Op& op = builtin("clip");
  return call_single(op, {x}, ClipAttributes{low, high});
}

Tensor clip_grad(const Tensor& x, const Tensor& dy, double low, double high) {
  static const Op& op = builtin("clip_grad");
  return call_single(op, {x, dy}, ClipAttributes{low, high});
}

void register_clip(OpRegistry& registry);
void register_clip(OpRegistry& registry) {
  registry.add({.name = "clip",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_clip,
                .gradient = clip_gradient,
                .gradient_reads = {.inputs = reads_of({0})}});
  registry.add(
      {.name = "clip_grad", .inputs = {{"x"}, {"dy"}}, .outputs = {{"dx"}}, .infer = infer_clip_grad});
}

}  // namespace sinter::ops
