#include <sinter/core/op/node.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_registration.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

/// Checks logits and target (inputs 0 and 1) and the options, which both ops share. Attributes: either op's.
template <class Attributes>
void check_inputs(const InferContext& context, const Attributes& options) {
  const char* tag = context.tag();
  context.expect_rank(0, 2);
  context.expect_float(0);
  const Shape& logits = context.shape(0);
  SINTER_CHECK(logits[1] > 0, "[{}] expected at least one class but got logits of shape {}", tag, logits);
  SINTER_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
               "[{}] expected label_smoothing in [0, 1] but got {}", tag, options.label_smoothing);
  const TensorSpec& target = context.input(1);
  SINTER_CHECK(
      target.dtype != DType::kInt64 || target.shape.rank() != 2,
      "[{}] expected class indices of shape ({},), one for each row of the logits, but got shape {}{}", tag,
      logits[0], target.shape,
      target.shape == Shape{logits[0], 1} ? "; ops::squeeze(target, 1) gives it" : "");
  if (context.shape(1).rank() == 2) {
    context.expect_same_dtype(1, 0);
    context.expect_shape(1, logits);
    SINTER_CHECK(options.ignore_index < 0, "[{}] ignore_index {} has no meaning with target probabilities",
                 tag, options.ignore_index);
  } else {
    context.expect_rank(1, {1, 2});
    context.expect_dtype(1, DType::kInt64);
    context.expect_shape(1, {logits[0]});
  }
}

TensorSpec row_spec(const InferContext& context) {
  const TensorSpec& logits = context.input(0);
  return {{logits.shape[0]}, accumulate_dtype(logits.dtype), logits.device};
}

TensorSpec loss_spec(const InferContext& context, Reduction reduction) {
  TensorSpec spec = row_spec(context);
  if (reduction != Reduction::kNone) spec.shape = {};
  return spec;
}

std::vector<TensorSpec> infer_cross_entropy(const InferContext& context) {
  const auto& options = context.attributes<CrossEntropyOptions>();
  check_inputs(context, options);
  return {loss_spec(context, options.reduction), row_spec(context)};
}

/// The gradients in ops that have gradients themselves.
std::vector<Tensor> composed_gradient(const GradientContext& context) {
  const auto& options = context.attributes<CrossEntropyOptions>();
  const Tensor target = context.input(1);
  const DType dtype = accumulate_dtype(context.input_spec(0).dtype);
  const Tensor logits = cast(context.input(0), dtype);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  Tensor share = context.grad(), given;
  if (target.rank() == 2) {
    given = cast(target, dtype);
    if (options.reduction == Reduction::kMean) share = affine(share, 1.0 / static_cast<double>(rows), 0.0);
  } else {
    const Tensor ignored =
        full({}, static_cast<double>(options.ignore_index), DType::kInt64, target.device());
    const Tensor counts = not_equal(target, ignored), ones = cast(counts, dtype);
    given = one_hot(where(counts, target, 0.0), classes, dtype);
    if (options.reduction == Reduction::kMean) share = div(share, sum(ones));
    share = where(counts, share, 0.0);
  }
  if (share.rank() == 1) share = unsqueeze(share, 1);
  const Tensor wanted =
      affine(given, 1.0 - options.label_smoothing, options.label_smoothing / static_cast<double>(classes));
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) {
    const Tensor apart = sub(mul(softmax(logits, 1), sum(wanted, {1}, {.keep_dims = true})), wanted);
    // A row without a share has no gradient, whatever its logits are.
    gradients[0] = cast(mul_no_nan(share, apart), context.input_spec(0).dtype);
  }
  if (context.needs(1)) {
    const Tensor has_part = not_equal(wanted, full({}, 0.0, dtype, wanted.device()));
    const Tensor losses = where(has_part, log_softmax(logits, 1), 0.0);
    gradients[1] = cast(mul(affine(losses, options.label_smoothing - 1.0, 0.0), share), target.dtype());
  }
  return gradients;
}

std::vector<Tensor> cross_entropy_gradient(const GradientContext& context) {
  if (grad_enabled()) return composed_gradient(context);
  CrossEntropyGrad grad =
      vjp::cross_entropy(context.grad(0), context.input(0), context.input(1), context.output(1),
                         context.attributes<CrossEntropyOptions>(), context.needs(1));
  return {grad.logits, grad.target};
}

std::vector<TensorSpec> infer_cross_entropy_grad(const InferContext& context) {
  const auto& attributes = context.attributes<CrossEntropyGradAttributes>();
  check_inputs(context, attributes);
  const TensorSpec rows = row_spec(context);
  const TensorSpec loss = loss_spec(context, attributes.reduction);
  context.expect_dtype(2, rows.dtype);
  context.expect_shape(2, rows.shape);
  context.expect_dtype(3, loss.dtype);
  context.expect_shape(3, loss.shape);
  if (!attributes.target_gradient) return {context.input(0)};
  SINTER_CHECK(context.shape(1).rank() == 2, "[{}] class indices have no gradient", context.tag());
  return {context.input(0), context.input(1)};
}

}  // namespace

std::string_view to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return "mean";
    case Reduction::kSum:
      return "sum";
    case Reduction::kNone:
      return "none";
  }
  return "unknown";
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  static const Op& op = builtin("cross_entropy");
  return call_single(op, {logits, target}, options);
}

CrossEntropyGrad vjp::cross_entropy(const Tensor& dloss, const Tensor& logits, const Tensor& target,
                                    const Tensor& log_sum, const CrossEntropyOptions& options,
                                    bool target_gradient) {
  static const Op& op = builtin("cross_entropy_grad");
  const CrossEntropyGradAttributes attributes{options.label_smoothing, options.ignore_index,
                                              options.reduction, target_gradient};
  std::vector<Tensor> outputs = call(op, {logits, target, log_sum, dloss}, attributes);
  return {outputs[0], target_gradient ? outputs[1] : Tensor()};
}

void register_cross_entropy(OpRegistry& registry);
void register_cross_entropy(OpRegistry& registry) {
  registry.add({.name = "cross_entropy",
                .inputs = {{"logits"}, {"target"}},
                .outputs = {{"loss"}, {.name = "log_sum", .differentiable = false}},
                .infer = infer_cross_entropy,
                .gradient = cross_entropy_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1}), .outputs = reads_of({1})},
                .traits = {.precision = Precision::kFloat32}});
  registry.add({.name = "cross_entropy_grad",
                .inputs = {{"logits"}, {"target"}, {"log_sum"}, {"dloss"}},
                .outputs = {{"dlogits"}, {"dtarget"}},
                .infer = infer_cross_entropy_grad});
  register_shard_cross_entropy(registry);
}

}  // namespace sinter::ops
