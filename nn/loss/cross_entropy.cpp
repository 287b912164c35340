// Cross-entropy of every shape of logits, and with class weights, by way of ops::cross_entropy.
#include <sinter/core/op/node.h>
#include <sinter/nn/loss/class_weights_internal.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::nn {
namespace {

Tensor reshaped(const Tensor& x, const Shape& shape) {
  return ops::reshape(x, std::vector<int64_t>(shape.begin(), shape.end()));
}

/// Logits and target as rows.
struct Rows {
  Tensor logits;  // (rows, C)
  Tensor target;  // (rows) or (rows, C)
  Shape shape;    // of the losses of all rows
};

Rows rows_of(const Tensor& logits, const Tensor& target, Layout layout) {
  SINTER_CHECK(logits.rank() == 1 || logits.rank() == 2 || logits.rank() == 4,
               "[cross_entropy] expected logits (N, C), (C) or images of them but got shape {}",
               logits.shape());
  if (logits.rank() == 2) return {logits, target, Shape{logits.shape()[0]}};
  const bool is_image = logits.rank() == 4;
  const bool is_first = is_image && layout == Layout::kNCHW;
  const int axis = is_first ? 1 : logits.rank() - 1;
  const int64_t classes = logits.shape()[axis];
  const Shape per_row = logits.shape().without(axis);
  const bool has_indices = target.dtype() == DType::kInt64;
  const Shape expected = has_indices ? per_row : logits.shape();
  SINTER_CHECK(target.shape() == expected, "[cross_entropy] expected {} of shape {} but got {}",
               has_indices ? "class indices" : "class probabilities", expected, target.shape());
  const auto as_rows = [&](const Tensor& x) {
    return ops::reshape(is_first ? ops::permute(x, {0, 2, 3, 1}) : x, {per_row.numel(), classes});
  };
  return {as_rows(logits), has_indices ? ops::reshape(target, {per_row.numel()}) : as_rows(target), per_row};
}

/// 0 for ignored rows, else 1; (rows), int64.
Tensor kept_rows(const Tensor& target, int64_t ignore_index) {
  const Tensor ignored =
      ops::equal(target, ops::full({}, static_cast<double>(ignore_index), DType::kInt64, target.device()));
  return ops::full({}, 1.0, DType::kInt64, target.device()) - ops::cast(ignored, DType::kInt64);
}

/// The mean, the sum or the losses themselves of rows whose class terms are weighted. With smoothing e a
/// row's loss is (1 - e) w_t (-log p_t) + e / C sum_c w_c (-log p_c), for a target t of indices.
Tensor weighted_loss(const CrossEntropyLoss& loss, const Rows& rows) {
  const Tensor& weight = loss.weight;
  const int64_t count = rows.logits.shape()[0], classes = rows.logits.shape()[1];
  const DType dtype = accumulate_dtype(rows.logits.dtype());
  check_class_weights("cross_entropy", weight, classes, dtype);
  const Tensor logits = ops::cast(rows.logits, dtype);
  const double e = loss.label_smoothing;
  SINTER_CHECK(e >= 0 && e <= 1, "[cross_entropy] expected label_smoothing in [0, 1] but got {}", e);
  if (rows.target.dtype() != DType::kInt64) {
    // The loss is linear in the target: weights and smoothing go into it.
    const Tensor smoothed = ops::cast(rows.target, dtype) * (1.0 - e) + e / static_cast<double>(classes);
    const Tensor losses = ops::cross_entropy(logits, smoothed * weight, {.reduction = Reduction::kNone});
    if (loss.reduction == Reduction::kNone) return losses;
    return loss.reduction == Reduction::kSum ? ops::sum(losses) : ops::mean(losses);
  }
  const ops::CrossEntropyOptions each{.ignore_index = loss.ignore_index, .reduction = Reduction::kNone};
  const Tensor kept = kept_rows(rows.target, loss.ignore_index), counted = ops::cast(kept, dtype);
  // Class 0 stands in for ignored rows, which weigh nothing.
  const Tensor own = ops::gather(weight, 0, rows.target * kept) * counted;
  Tensor losses = ops::mul_no_nan(ops::cross_entropy(logits, rows.target, each), own);
  if (e > 0) {
    const Tensor all = ops::broadcast_to(weight, {count, classes});
    const Tensor spread = ops::cross_entropy(logits, all, {.reduction = Reduction::kNone});
    const Tensor smoothed = ops::mul_no_nan(spread, counted) * (e / static_cast<double>(classes));
    losses = e < 1.0 ? losses * (1.0 - e) + smoothed : smoothed;
  }
  if (loss.reduction == Reduction::kNone) return losses;
  const Tensor total = ops::sum(losses);
  return loss.reduction == Reduction::kSum ? total : total / ops::sum(own);
}

}  // namespace

Tensor CrossEntropyLoss::operator()(const Tensor& logits, const Tensor& target) const {
  const Rows rows = rows_of(logits, target, layout);
  const Tensor loss =
      weight.defined()
          ? weighted_loss(*this, rows)
          : ops::cross_entropy(
                rows.logits, rows.target,
                {.label_smoothing = label_smoothing, .ignore_index = ignore_index, .reduction = reduction});
  return reduction == Reduction::kNone && loss.shape() != rows.shape ? reshaped(loss, rows.shape) : loss;
}

}  // namespace sinter::nn
