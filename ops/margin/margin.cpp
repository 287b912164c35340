#include <cmath>
#include <numbers>

#include <sinter/ops/binary/binary.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/margin/margin.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

void check_options(const char* tag, const CombinedMarginOptions& options) {
  SINTER_CHECK(options.scale > 0 && std::isfinite(options.scale), "[{}] expected scale > 0 but got {}", tag,
               options.scale);
  SINTER_CHECK(options.m1 > 0 && std::isfinite(options.m1), "[{}] expected m1 > 0 but got {}", tag,
               options.m1);
  SINTER_CHECK(options.m2 >= 0 && options.m2 < std::numbers::pi, "[{}] expected m2 in [0, pi) but got {}",
               tag, options.m2);
  SINTER_CHECK(options.m3 >= 0 && std::isfinite(options.m3), "[{}] expected m3 >= 0 but got {}", tag,
               options.m3);
  SINTER_CHECK(options.interclass_filter >= 0 && options.interclass_filter < 1,
               "[{}] expected interclass_filter in [0, 1) but got {}", tag, options.interclass_filter);
  SINTER_CHECK(options.epsilon >= 0 && options.epsilon < 1, "[{}] expected epsilon in [0, 1) but got {}", tag,
               options.epsilon);
}

/// Checks input i, which may be absent: a margin for each of `rows` rows.
void check_margins(const InferContext& context, size_t i, int64_t rows, DType dtype) {
  if (!context.has(i)) return;
  context.expect_dtype(i, dtype);
  context.expect_shape(i, {rows});
}

void check_angles(const InferContext& context, size_t i, int64_t rows, DType dtype, double m1) {
  check_margins(context, i, rows, dtype);
  SINTER_CHECK(!context.has(i) || m1 == 1.0, "[{}] expected m1 = 1 beside angles of each row but got {}",
               context.tag(), m1);
}

/// Checks input i, the labels of `rows` rows.
void check_labels(const InferContext& context, size_t i, int64_t rows) {
  const Shape& labels = context.shape(i);
  SINTER_CHECK(labels.rank() == 1, "[{}] expected labels of shape ({},), one for each row, but got {}{}",
               context.tag(), rows, labels,
               labels == Shape{rows, 1} ? "; ops::squeeze(labels, 1) gives it" : "");
  context.expect_dtype(i, DType::kInt64);
  context.expect_shape(i, {rows});
}

/// Checks input i, a float matrix with at least one column.
const Shape& check_matrix(const InferContext& context, size_t i) {
  context.expect_rank(i, 2);
  context.expect_float(i);
  const Shape& shape = context.shape(i);
  SINTER_CHECK(shape[1] > 0, "[{}] expected at least one class but got shape {}", context.tag(), shape);
  return shape;
}

std::vector<TensorSpec> infer_combined_margin(const InferContext& context) {
  const Shape& shape = check_matrix(context, 0);
  check_labels(context, 1, shape[0]);
  const auto& options = context.attributes<CombinedMarginOptions>();
  check_options(context.tag(), options);
  const TensorSpec& cosine = context.input(0);
  const DType dtype = accumulate_dtype(cosine.dtype);
  check_angles(context, 2, shape[0], dtype, options.m1);
  check_margins(context, 3, shape[0], dtype);
  return {{shape, dtype, cosine.device}, {Shape{shape[0]}, dtype, cosine.device}};
}

/// The gradient by the rows' angles, from that by their own logits; `angles` may be absent.
Tensor angle_gradient(const Tensor& down, const Tensor& own_cosine, const Tensor& angles,
                      const CombinedMarginOptions& options) {
  const double most = 1.0 - options.epsilon;
  const Tensor cosine = clip(own_cosine, -most, most);
  const Tensor sine = sqrt(mul(affine(cosine, -1.0, 1.0), affine(cosine, 1.0, 1.0)));
  const Tensor moved = add(mul(sine, cos(angles)), mul(cosine, sin(angles)));
  const Tensor slope = affine(moved, -options.scale, 0.0);
  if (options.epsilon == 0) return mul(down, slope);
  return mul(down, where(less(moved, full_like(moved, std::sin(options.epsilon))), 0.0, slope));
}

std::vector<Tensor> combined_margin_gradient(const GradientContext& context) {
  const auto& options = context.attributes<CombinedMarginOptions>();
  const Tensor labels = context.input(1), angles = context.input(2), dlogits = context.grad(0);
  std::vector<Tensor> gradients(4);
  if (context.needs(0)) {
    gradients[0] = vjp::combined_margin(dlogits, labels, context.output(0), context.output(1),
                                        context.input_spec(0).dtype, options, angles);
  }
  if (!context.needs(2) && !context.needs(3)) return gradients;
  const Tensor down = own_elements(dlogits, labels);
  if (context.needs(2)) gradients[2] = angle_gradient(down, context.output(1), angles, options);
  if (context.needs(3)) gradients[3] = affine(down, -options.scale, 0.0);
  return gradients;
}

std::vector<TensorSpec> infer_combined_margin_grad(const InferContext& context) {
  const auto& attributes = context.attributes<CombinedMarginGradAttributes>();
  const Shape& shape = check_matrix(context, 0);
  check_labels(context, 1, shape[0]);
  check_options(context.tag(), attributes.options);
  const TensorSpec& dlogits = context.input(0);
  SINTER_CHECK(is_float(attributes.dtype) && accumulate_dtype(attributes.dtype) == dlogits.dtype,
               "[{}] expected dlogits in {}, for cosines in {}, but got {}", context.tag(),
               accumulate_dtype(attributes.dtype), attributes.dtype, dlogits.dtype);
  context.expect_same_dtype(2, 0);
  context.expect_shape(2, shape);
  context.expect_same_dtype(3, 0);
  context.expect_shape(3, {shape[0]});
  check_angles(context, 4, shape[0], dlogits.dtype, attributes.options.m1);
  return {{shape, attributes.dtype, dlogits.device}};
}

}  // namespace

std::string_view to_string(MarginGradient gradient) {
  return gradient == MarginGradient::kExact ? "exact" : "straight_through";
}

Tensor combined_margin(const Tensor& cosine, const Tensor& labels, const CombinedMarginOptions& options,
                       const Tensor& angles, const Tensor& shifts) {
  static const Op& op = builtin("combined_margin");
  return call_single(op, {cosine, labels, angles, shifts}, options);
}

Tensor own_elements(const Tensor& x, const Tensor& labels) {
  SINTER_CHECK(x.rank() == 2 && labels.rank() == 1 && labels.size(0) == x.size(0),
               "[own_elements] expected x (N, C) and labels (N) but got shapes {} and {}", x.shape(),
               labels.shape());
  // Labels out of range are combined_margin's to notice.
  const Tensor places = clip(labels, 0.0, static_cast<double>(x.size(1) - 1));
  const Tensor own = squeeze(gather(x, 1, unsqueeze(places, 1)), 1);
  return where(greater_equal(labels, zeros_like(labels)), own, 0.0);
}

Tensor vjp::combined_margin(const Tensor& dlogits, const Tensor& labels, const Tensor& logits,
                            const Tensor& own_cosine, DType dtype, const CombinedMarginOptions& options,
                            const Tensor& angles) {
  static const Op& op = builtin("combined_margin_grad");
  return call_single(op, {dlogits, labels, logits, own_cosine, angles},
                     CombinedMarginGradAttributes{options, dtype});
}

void register_margin(OpRegistry& registry);
void register_margin(OpRegistry& registry) {
  // The gradient reads the logits, which the loss behind them keeps anyway, and not the cosines. They are
  // float32 beside 16-bit cosines too.
  registry.add({.name = "combined_margin",
                .inputs = {{"cosine"},
                           {"labels"},
                           {.name = "angles", .optional = true},
                           {.name = "shifts", .optional = true}},
                .outputs = {{"logits"}, {.name = "own_cosine", .differentiable = false}},
                .infer = infer_combined_margin,
                .gradient = combined_margin_gradient,
                .gradient_reads = {.inputs = reads_of({1, 2}), .outputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kFollow, .float32_inputs = reads_of({2, 3})}});
  registry.add(
      {.name = "combined_margin_grad",
       .inputs = {{"dlogits"}, {"labels"}, {"logits"}, {"own_cosine"}, {.name = "angles", .optional = true}},
       .outputs = {{"dcosine"}},
       .infer = infer_combined_margin_grad});
}

}  // namespace sinter::ops
