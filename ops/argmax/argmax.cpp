#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/argmax/argmax_attributes.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_argmax(const InferContext& context) {
  const auto& attributes = context.attributes<ArgmaxAttributes>();
  const Shape& x = context.shape(0);
  const int axis = normalize_axis(attributes.axis, x.rank(), context.tag());
  const Shape shape = attributes.keep_dims ? x.with(axis, 1) : x.without(axis);
  SINTER_CHECK(x[axis] > 0 || shape.numel() == 0, "[argmax] expected elements along axis {} but got shape {}",
               axis, x);
  return {{shape, DType::kInt64, context.input(0).device}};
}

}  // namespace

Tensor argmax(const Tensor& x, int64_t axis, const ReduceOptions& options) {
  static const Op& op = builtin("argmax");
  return call_single(op, {x}, ArgmaxAttributes{axis, options.keep_dims});
}

Tensor argmax(const Tensor& x) {
  return argmax(reshape(x, {x.numel()}), 0);
}

namespace {

/// x in the opposite order. For integers that is -1 - x, which wraps around nowhere.
Tensor reversed(const Tensor& x) {
  if (x.dtype() == DType::kBool) return logical_not(x);
  return is_float(x.dtype()) ? neg(x) : affine(x, -1.0, -1.0);
}

}  // namespace

Tensor argmin(const Tensor& x, int64_t axis, const ReduceOptions& options) {
  return argmax(reversed(x), axis, options);
}

Tensor argmin(const Tensor& x) {
  return argmax(reversed(x));
}

void register_argmax(OpRegistry& registry);
void register_argmax(OpRegistry& registry) {
  registry.add({.name = "argmax",
                .inputs = {{"x"}},
                .outputs = {{.name = "indices", .differentiable = false}},
                .infer = infer_argmax});
}

}  // namespace sinter::ops
