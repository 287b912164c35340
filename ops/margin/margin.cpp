#include <cmath>
#include <numbers>

#include <sinter/ops/common/op_support.h>
#include <sinter/ops/margin/margin.h>

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
  check_options(context.tag(), context.attributes<CombinedMarginOptions>());
  const TensorSpec& cosine = context.input(0);
  const DType dtype = accumulate_dtype(cosine.dtype);
  return {{shape, dtype, cosine.device}, {Shape{shape[0]}, dtype, cosine.device}};
}

std::vector<Tensor> combined_margin_gradient(const GradientContext& context) {
  return {combined_margin_grad(context.grad(0), context.input(1), context.output(0), context.output(1),
                               context.input_spec(0).dtype, context.attributes<CombinedMarginOptions>()),
          {}};
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
  return {{shape, attributes.dtype, dlogits.device}};
}

}  // namespace

std::string_view to_string(MarginGradient gradient) {
  return gradient == MarginGradient::kExact ? "exact" : "straight_through";
}

Tensor combined_margin(const Tensor& cosine, const Tensor& labels, const CombinedMarginOptions& options) {
  static const Op& op = builtin("combined_margin");
  return call_single(op, {cosine, labels}, options);
}

Tensor combined_margin_grad(const Tensor& dlogits, const Tensor& labels, const Tensor& logits,
                            const Tensor& own_cosine, DType dtype, const CombinedMarginOptions& options) {
  static const Op& op = builtin("combined_margin_grad");
  return call_single(op, {dlogits, labels, logits, own_cosine}, CombinedMarginGradAttributes{options, dtype});
}

void register_margin(OpRegistry& registry);
void register_margin(OpRegistry& registry) {
  // The gradient reads the logits, which the loss behind them keeps anyway, and not the cosines. They are
  // float32 beside 16-bit cosines too.
  registry.add({.name = "combined_margin",
                .inputs = {{"cosine"}, {"labels"}},
                .outputs = {{"logits"}, {.name = "own_cosine", .differentiable = false}},
                .infer = infer_combined_margin,
                .gradient = combined_margin_gradient,
                .gradient_reads = {.inputs = reads_of({1}), .outputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kFollow}});
  registry.add({.name = "combined_margin_grad",
                .inputs = {{"dlogits"}, {"labels"}, {"logits"}, {"own_cosine"}},
                .outputs = {{"dcosine"}},
                .infer = infer_combined_margin_grad});
}

}  // namespace sinter::ops
