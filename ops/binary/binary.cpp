#include <sinter/core/base/checked.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/binary/binary_math.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_common(const InferContext& context) {
  context.expect_same_dtype(1, 0);
  return {{broadcast_shapes(context.shape(0), context.shape(1), context.tag()), context.input(0).dtype,
           context.input(0).device}};
}

std::vector<TensorSpec> infer_number(const InferContext& context) {
  context.expect_number(0);
  return infer_common(context);
}

std::vector<TensorSpec> infer_float(const InferContext& context) {
  context.expect_float(0);
  return infer_common(context);
}

std::vector<TensorSpec> infer_compare(const InferContext& context) {
  std::vector<TensorSpec> specs = infer_common(context);
  specs[0].dtype = DType::kBool;
  return specs;
}

std::vector<TensorSpec> infer_gradient_op(const InferContext& context) {
  context.expect_float(0);
  context.expect_same_dtype(2, 0);
  const std::vector<TensorSpec> specs = infer_common(context);
  context.expect_shape(2, specs[0].shape);
  return specs;
}

/// `grad`, which has the shape of the output, as the gradient of input i.
Tensor reduced(const GradientContext& context, size_t i, const Tensor& grad) {
  return sum_to(grad, context.input_spec(i).shape);
}

std::vector<Tensor> add_gradient(const GradientContext& context) {
  return {context.needs(0) ? reduced(context, 0, context.grad()) : Tensor(),
          context.needs(1) ? reduced(context, 1, context.grad()) : Tensor()};
}

std::vector<Tensor> sub_gradient(const GradientContext& context) {
  return {context.needs(0) ? reduced(context, 0, context.grad()) : Tensor(),
          context.needs(1) ? neg(reduced(context, 1, context.grad())) : Tensor()};
}

std::vector<Tensor> mul_gradient(const GradientContext& context) {
  return {context.needs(0) ? reduced(context, 0, mul(context.grad(), context.input(1))) : Tensor(),
          context.needs(1) ? reduced(context, 1, mul(context.grad(), context.input(0))) : Tensor()};
}

// da = dy / b and db = -dy * y / b, which reads the quotient instead of a.
std::vector<Tensor> div_gradient(const GradientContext& context) {
  const Tensor scaled = div(context.grad(), context.input(1));
  return {context.needs(0) ? reduced(context, 0, scaled) : Tensor(),
          context.needs(1) ? neg(reduced(context, 1, mul(scaled, context.output(0)))) : Tensor()};
}

/// Of an op in which a and b may change places.
template <Tensor (*kGrad)(const Tensor&, const Tensor&, const Tensor&)>
std::vector<Tensor> symmetric_gradient(const GradientContext& context) {
  const Tensor a = context.input(0), b = context.input(1);
  return {context.needs(0) ? reduced(context, 0, kGrad(context.grad(), a, b)) : Tensor(),
          context.needs(1) ? reduced(context, 1, kGrad(context.grad(), b, a)) : Tensor()};
}

/// Of the gradient of maximum or minimum, which is linear in dy; a and b only choose.
template <Tensor (*kGrad)(const Tensor&, const Tensor&, const Tensor&)>
std::vector<Tensor> choice_grad_gradient(const GradientContext& context) {
  if (!context.needs(2)) return std::vector<Tensor>(3);
  return {Tensor(), Tensor(), kGrad(context.grad(), context.input(0), context.input(1))};
}

// dy * b, where a factor of 0, or an a of 0 beside an infinite b, leaves out the other.
std::vector<Tensor> mul_no_nan_grad_gradient(const GradientContext& context) {
  const Tensor a = context.input(0), dda = context.grad();
  return {Tensor(),
          context.needs(1) ? reduced(context, 1, vjp::mul_no_nan(dda, a, context.input(2))) : Tensor(),
          context.needs(2) ? vjp::mul_no_nan(dda, a, context.input(1)) : Tensor()};
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("add");
  return call_single(op, {a, b});
}

Tensor sub(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("sub");
  return call_single(op, {a, b});
}

Tensor mul(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("mul");
  return call_single(op, {a, b});
}

Tensor div(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("div");
  return call_single(op, {a, b});
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("maximum");
  return call_single(op, {a, b});
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("minimum");
  return call_single(op, {a, b});
}

Tensor mul_no_nan(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("mul_no_nan");
  return call_single(op, {a, b});
}

Tensor equal(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("equal");
  return call_single(op, {a, b});
}

Tensor less(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("less");
  return call_single(op, {a, b});
}

Tensor greater(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("greater");
  return call_single(op, {a, b});
}

Tensor not_equal(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("not_equal");
  return call_single(op, {a, b});
}

Tensor less_equal(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("less_equal");
  return call_single(op, {a, b});
}

Tensor greater_equal(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("greater_equal");
  return call_single(op, {a, b});
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("logical_and");
  return call_single(op, {a, b});
}

Tensor logical_or(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("logical_or");
  return call_single(op, {a, b});
}

Tensor logical_xor(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("logical_xor");
  return call_single(op, {a, b});
}

Tensor logical_not(const Tensor& x) {
  return equal(x, full({}, 0.0, x.dtype(), x.device()));
}

Tensor vjp::maximum(const Tensor& dy, const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("maximum_grad");
  return call_single(op, {a, b, dy});
}

Tensor vjp::minimum(const Tensor& dy, const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("minimum_grad");
  return call_single(op, {a, b, dy});
}

Tensor vjp::mul_no_nan(const Tensor& dy, const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("mul_no_nan_grad");
  return call_single(op, {a, b, dy});
}

Tensor detail::number_beside(const char* op, double number, const Tensor& beside) {
  check_holds(op, beside.dtype(), number);
  return Tensor::full({}, number, beside.dtype(), beside.device());
}

void register_binary(OpRegistry& registry);
void register_binary(OpRegistry& registry) {
  const auto define = [&](const char* name, OpDef::Infer infer, OpDef::Gradient gradient,
                          GradientReads reads) {
    registry.add({.name = name,
                  .inputs = {{"a"}, {"b"}},
                  .outputs = {{"y"}},
                  .infer = infer,
                  .gradient = gradient,
                  .gradient_reads = reads,
                  .traits = {.elementwise = true,
                             .precision = Precision::kFollow,
                             .layout = {.kind = LayoutRule::Kind::kAnyOrder},
                             .role = name == std::string_view("add") ? Role::kSum : Role::kNone}});
  };
  const GradientReads both = {.inputs = reads_of({0, 1})};
  define("add", infer_number, add_gradient, {});
  define("sub", infer_number, sub_gradient, {});
  define("mul", infer_number, mul_gradient, both);
  define("div", infer_float, div_gradient, {.inputs = reads_of({1}), .outputs = reads_of({0})});
  define("mul_no_nan", infer_float, symmetric_gradient<vjp::mul_no_nan>, both);
  define("maximum", infer_number, symmetric_gradient<vjp::maximum>, both);
  define("minimum", infer_number, symmetric_gradient<vjp::minimum>, both);
  for_each_functor<CompareFunctors>([&]<class F>(F) { define(F::kName, infer_compare, nullptr, {}); });
  const auto define_gradient = [&](const char* name, OpDef::Gradient gradient, GradientReads reads) {
    registry.add({.name = name,
                  .inputs = {{"a"}, {"b"}, {"dy"}},
                  .outputs = {{"da"}},
                  .infer = infer_gradient_op,
                  .gradient = gradient,
                  .gradient_reads = reads,
                  .traits = {.elementwise = true}});
  };
  define_gradient("maximum_grad", choice_grad_gradient<vjp::maximum>, both);
  define_gradient("minimum_grad", choice_grad_gradient<vjp::minimum>, both);
  define_gradient("mul_no_nan_grad", mul_no_nan_grad_gradient, {.inputs = reads_of({0, 1, 2})});
}

}  // namespace sinter::ops
