#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_plan.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

AxisMask mask_of(const InferContext& context) {
  return reduced_axes(context.attributes<ReduceAttributes>().axes, context.shape(0).rank(), context.tag());
}

TensorSpec reduced_spec(const InferContext& context) {
  TensorSpec spec = context.input(0);
  spec.shape = reduced_shape(spec.shape, mask_of(context), context.attributes<ReduceAttributes>().keep_dims);
  return spec;
}

std::vector<TensorSpec> infer_sum(const InferContext& context) {
  TensorSpec spec = reduced_spec(context);
  if (!is_float(spec.dtype)) spec.dtype = DType::kInt64;
  return {spec};
}

std::vector<TensorSpec> infer_mean(const InferContext& context) {
  context.expect_float(0);
  return {reduced_spec(context)};
}

std::vector<TensorSpec> infer_extreme(const InferContext& context) {
  const TensorSpec spec = reduced_spec(context);
  SINTER_CHECK(spec.shape.numel() == 0 || context.shape(0).numel() > 0,
               "[{}] expected at least one element to reduce but got shape {}", context.tag(),
               context.shape(0));
  return {spec};
}

std::vector<TensorSpec> infer_extreme_grad(const InferContext& context) {
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, reduced_spec(context).shape);
  return {context.input(0)};
}

std::vector<TensorSpec> infer_sum_to(const InferContext& context) {
  context.expect_float(0);
  const Shape shape(context.attributes<ShapeAttributes>().shape);
  SINTER_CHECK(shape.rank() <= context.shape(0).rank() &&
                   broadcast_shapes(shape, context.shape(0), context.tag()) == context.shape(0),
               "[sum_to] expected a shape that can be broadcast to {} but got {}", context.shape(0), shape);
  return {{shape, context.input(0).dtype, context.input(0).device}};
}

std::vector<TensorSpec> infer_broadcast_to(const InferContext& context) {
  const Shape shape(context.attributes<ShapeAttributes>().shape);
  SINTER_CHECK(context.shape(0).rank() <= shape.rank() &&
                   broadcast_shapes(context.shape(0), shape, context.tag()) == shape,
               "[broadcast_to] expected a shape to which {} can be broadcast but got {}", context.shape(0),
               shape);
  return {{shape, context.input(0).dtype, context.input(0).device}};
}

std::vector<int64_t> extents_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

/// `grad`, which has the shape of the output, repeated along the reduced axes.
Tensor repeated(const GradientContext& context, const Tensor& grad) {
  const Shape& x = context.input_spec(0).shape;
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.rank(), "reduce");
  return broadcast_to(reshape(grad, extents_of(reduced_shape(x, mask, true))), x);
}

std::vector<Tensor> sum_gradient(const GradientContext& context) {
  return {repeated(context, context.grad())};
}

std::vector<Tensor> mean_gradient(const GradientContext& context) {
  const auto outputs = static_cast<double>(context.output_spec(0).shape.numel());
  const auto terms = static_cast<double>(context.input_spec(0).shape.numel()) / outputs;
  // With nothing to reduce there is no element whose gradient the scale, NaN or infinite then, could reach.
  return {repeated(context, affine(context.grad(), 1.0 / terms, 0.0))};
}

template <Tensor (*kGrad)(const Tensor&, const Tensor&, const ReduceAttributes&)>
std::vector<Tensor> extreme_gradient(const GradientContext& context) {
  return {kGrad(context.grad(), context.input(0), context.attributes<ReduceAttributes>())};
}

/// dy is found again at the place of the extreme element: that is where the gradient of ones is not 0.
template <Tensor (*kGrad)(const Tensor&, const Tensor&, const ReduceAttributes&)>
std::vector<Tensor> extreme_grad_gradient(const GradientContext& context) {
  if (!context.needs(1)) return {Tensor(), Tensor()};
  static const Op& mul_no_nan = builtin("mul_no_nan");  // ops/binary stands on this folder
  const auto& attributes = context.attributes<ReduceAttributes>();
  const TensorSpec& dy = context.input_spec(1);
  const Tensor chosen = kGrad(full(dy.shape, 1.0, dy.dtype, dy.device), context.input(0), attributes);
  return {Tensor(), sum(call_single(mul_no_nan, {chosen, context.grad()}), attributes.axes,
                        {.keep_dims = attributes.keep_dims})};
}

std::vector<Tensor> sum_to_gradient(const GradientContext& context) {
  return {broadcast_to(context.grad(), context.input_spec(0).shape)};
}

std::vector<Tensor> broadcast_to_gradient(const GradientContext& context) {
  return {sum_to(context.grad(), context.input_spec(0).shape)};
}

/// What is left of the axes must follow each other as before, unless all are kept.
std::optional<Attributes> reorder_sum(const Attributes& attributes, std::span<const int64_t> order) {
  ReduceAttributes reduce = attributes.as<ReduceAttributes>();
  const AxisMask mask = reduced_axes(reduce.axes, static_cast<int>(order.size()), "reduce");
  if (!reduce.keep_dims && !keeps_order(mask, false, order)) return std::nullopt;
  for (int64_t& axis : reduce.axes) axis = reordered_axis(axis, order);
  return reduce;
}

/// So must the reduced axes: the gradient goes to the first of equal elements.
std::optional<Attributes> reorder_extreme(const Attributes& attributes, std::span<const int64_t> order) {
  const auto& axes = attributes.as<ReduceAttributes>().axes;
  const AxisMask mask = reduced_axes(axes, static_cast<int>(order.size()), "reduce");
  return keeps_order(mask, true, order) ? reorder_sum(attributes, order) : std::nullopt;
}

}  // namespace

Tensor sum(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  static const Op& op = builtin("sum");
  return call_single(op, {x}, ReduceAttributes{axes.to_vector(), options.keep_dims});
}

Tensor mean(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  static const Op& op = builtin("mean");
  return call_single(op, {x}, ReduceAttributes{axes.to_vector(), options.keep_dims});
}

Tensor max(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  static const Op& op = builtin("max");
  return call_single(op, {x}, ReduceAttributes{axes.to_vector(), options.keep_dims});
}

Tensor min(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  static const Op& op = builtin("min");
  return call_single(op, {x}, ReduceAttributes{axes.to_vector(), options.keep_dims});
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  static const Op& op = builtin("sum_to");
  if (x.shape() == shape) return x;
  return call_single(op, {x}, ShapeAttributes{extents_of(shape)});
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  static const Op& op = builtin("broadcast_to");
  if (x.shape() == shape) return x;
  return call_single(op, {x}, ShapeAttributes{extents_of(shape)});
}

Tensor vjp::max(const Tensor& dy, const Tensor& x, const ReduceAttributes& attributes) {
  static const Op& op = builtin("max_grad");
  return call_single(op, {x, dy}, attributes);
}

Tensor vjp::min(const Tensor& dy, const Tensor& x, const ReduceAttributes& attributes) {
  static const Op& op = builtin("min_grad");
  return call_single(op, {x, dy}, attributes);
}

void register_reduce(OpRegistry& registry);
void register_reduce(OpRegistry& registry) {
  const auto define = [&](const char* name, OpDef::Infer infer, OpDef::Gradient gradient, GradientReads reads,
                          const OpTraits& traits) {
    registry.add({.name = name,
                  .inputs = {{"x"}},
                  .outputs = {{"y"}},
                  .infer = infer,
                  .gradient = gradient,
                  .gradient_reads = reads,
                  .traits = traits});
  };
  const OpTraits sums{.precision = Precision::kFloat32,
                      .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_sum}};
  const OpTraits extremes{.precision = Precision::kFollow,
                          .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_extreme}};
  define("sum", infer_sum, sum_gradient, {}, sums);
  define("mean", infer_mean, mean_gradient, {}, sums);
  define("max", infer_extreme, extreme_gradient<vjp::max>, {.inputs = reads_of({0})}, extremes);
  define("min", infer_extreme, extreme_gradient<vjp::min>, {.inputs = reads_of({0})}, extremes);
  define("sum_to", infer_sum_to, sum_to_gradient, {}, {.precision = Precision::kFloat32});
  define("broadcast_to", infer_broadcast_to, broadcast_to_gradient, {}, {.precision = Precision::kFollow});
  const auto define_gradient = [&](const char* name, OpDef::Gradient gradient) {
    registry.add({.name = name,
                  .inputs = {{"x"}, {"dy"}},
                  .outputs = {{"dx"}},
                  .infer = infer_extreme_grad,
                  .gradient = gradient,
                  .gradient_reads = {.inputs = reads_of({0})}});
  };
  define_gradient("max_grad", extreme_grad_gradient<vjp::max>);
  define_gradient("min_grad", extreme_grad_gradient<vjp::min>);
}

}  // namespace sinter::ops
