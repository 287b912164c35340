#include <limits>

#include <sinter/core/op/call_tracer.h>
#include <sinter/nn/loss/class_weights_internal.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

namespace sinter::nn {
namespace {

void expect_one_shape(const char* tag, const Tensor& a, const Tensor& b) {
  SINTER_CHECK(a.shape() == b.shape(), "[{}] expected two tensors of one shape but got {} and {}", tag,
               a.shape(), b.shape());
}

/// In the dtype that the loss is computed in.
Tensor wide(const Tensor& x) {
  return ops::cast(x, accumulate_dtype(x.dtype()));
}

Tensor reduced(const Tensor& terms, Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return ops::mean(terms);
    case Reduction::kSum:
      return ops::sum(terms);
    case Reduction::kNone:
      break;
  }
  return terms;
}

std::vector<int64_t> extents_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

/// Of labels that the host can read without waiting for a device; those of a job, or on a GPU, are refused by
/// what reads them, or not at all.
void check_labels(const Tensor& target, int64_t classes, int64_t ignore_index) {
  if (!target.device().is_cpu() || call_tracer() != nullptr) return;
  const int64_t* const labels = target.data<int64_t>();
  for (int64_t i = 0; i < target.numel(); ++i) {
    SINTER_CHECK(labels[i] == ignore_index || (labels[i] >= 0 && labels[i] < classes),
                 "[nll_loss] expected class indices in [0, {}) or ignore_index {} but got {} at position {}",
                 classes, ignore_index, labels[i], i);
  }
}

/// Half of the square of a small difference, a straight line for a large one: with m = min(|d|, delta) both
/// are m (|d| - m / 2).
Tensor huber(const Tensor& prediction, const Tensor& target, double delta) {
  const Tensor distance = ops::abs(wide(prediction) - wide(target));
  const Tensor limited = ops::clip(distance, 0.0, delta);
  return limited * (distance - limited * 0.5);
}

}  // namespace

Tensor NLLLoss::operator()(const Tensor& log_probabilities, const Tensor& target) const {
  const Tensor& x = log_probabilities;
  SINTER_CHECK(
      x.rank() > 0 && target.dtype() == DType::kInt64,
      "[nll_loss] expected log-probabilities of a rank above 0 and class indices in int64 but got {} "
      "and {}",
      x.shape(), target.dtype());
  const int axis = x.rank() == 1 ? 0 : x.rank() == 4 && layout == Layout::kNHWC ? 3 : 1;
  SINTER_CHECK(target.shape() == x.shape().without(axis),
               "[nll_loss] expected a class index for each sample of log-probabilities {} but got shape {}",
               x.shape(), target.shape());
  const Tensor values = wide(x);
  if (weight.defined()) check_class_weights("nll_loss", weight, x.shape()[axis], values.dtype());
  check_labels(target, x.shape()[axis], ignore_index);
  const Tensor number = ops::full({}, static_cast<double>(ignore_index), DType::kInt64, target.device());
  const Tensor ignored = ops::equal(target, number);
  const Tensor classes = ops::where(ignored, 0.0, target);
  const Tensor terms = -ops::squeeze(ops::gather(values, axis, ops::unsqueeze(classes, axis)), axis);
  Tensor weights = ops::full(target.shape(), 1.0, values.dtype(), values.device());
  if (weight.defined())
    weights = ops::reshape(ops::index_select(weight, 0, classes), extents_of(target.shape()));
  weights = ops::where(ignored, 0.0, weights);
  const Tensor weighted = ops::mul_no_nan(weights, terms);
  return reduction == Reduction::kMean ? ops::sum(weighted) / ops::sum(weights)
                                       : reduced(weighted, reduction);
}

Tensor TripletMarginLoss::operator()(const Tensor& anchor, const Tensor& positive,
                                     const Tensor& negative) const {
  expect_one_shape("triplet_margin_loss", anchor, positive);
  expect_one_shape("triplet_margin_loss", anchor, negative);
  SINTER_CHECK(anchor.rank() == 2, "[triplet_margin_loss] expected rows, (N, D), but got shape {}",
               anchor.shape());
  const auto distance = [](const Tensor& a, const Tensor& b) {
    return ops::norm(wide(a) - wide(b) + 1e-6, {1});
  };
  Tensor far = distance(anchor, negative);
  if (swap) far = ops::minimum(far, distance(positive, negative));
  return reduced(ops::relu(distance(anchor, positive) - far + margin), reduction);
}

Tensor CosineEmbeddingLoss::operator()(const Tensor& a, const Tensor& b, const Tensor& target) const {
  expect_one_shape("cosine_embedding_loss", a, b);
  SINTER_CHECK(a.rank() == 2 && target.shape() == Shape{a.size(0)},
               "[cosine_embedding_loss] expected rows, (N, D), and a target for each but got {} and {}",
               a.shape(), target.shape());
  const Tensor x = wide(a), y = wide(b), t = wide(target);
  constexpr double kEpsilon = 1e-12;  // on the squares of both lengths, as in PyTorch
  const auto squares = [](const Tensor& rows) { return ops::sum(ops::square(rows), {1}) + kEpsilon; };
  const Tensor cosine = ops::sum(x * y, {1}) * ops::rsqrt(squares(x) * squares(y));
  const Tensor is_same = ops::equal(t, ops::full({}, 1.0, t.dtype(), t.device()));
  return reduced(ops::where(is_same, 1.0 - cosine, ops::relu(cosine - margin)), reduction);
}

Tensor MSELoss::operator()(const Tensor& prediction, const Tensor& target) const {
  expect_one_shape("mse_loss", prediction, target);
  return reduced(ops::square(wide(prediction) - wide(target)), reduction);
}

Tensor L1Loss::operator()(const Tensor& prediction, const Tensor& target) const {
  expect_one_shape("l1_loss", prediction, target);
  return reduced(ops::abs(wide(prediction) - wide(target)), reduction);
}

Tensor HuberLoss::operator()(const Tensor& prediction, const Tensor& target) const {
  SINTER_CHECK(delta > 0, "[huber_loss] expected delta > 0 but got {}", delta);
  expect_one_shape("huber_loss", prediction, target);
  return reduced(huber(prediction, target, delta), reduction);
}

Tensor SmoothL1Loss::operator()(const Tensor& prediction, const Tensor& target) const {
  SINTER_CHECK(beta >= 0, "[smooth_l1_loss] expected beta >= 0 but got {}", beta);
  if (beta == 0.0) return L1Loss{reduction}(prediction, target);
  expect_one_shape("smooth_l1_loss", prediction, target);
  return reduced(huber(prediction, target, beta) / beta, reduction);
}

Tensor BCEWithLogitsLoss::operator()(const Tensor& logits, const Tensor& target) const {
  SINTER_CHECK(pos_weight >= 0, "[bce_with_logits] expected pos_weight >= 0 but got {}", pos_weight);
  expect_one_shape("bce_with_logits", logits, target);
  const Tensor x = wide(logits), t = wide(target);
  // A logit may be infinite where its target is sure.
  const Tensor negative = ops::mul_no_nan(1.0 - t, ops::softplus(x));
  if (pos_weight == 0.0) return reduced(negative, reduction);
  const Tensor positive = ops::mul_no_nan(t, ops::softplus(-x));
  return reduced(negative + (pos_weight == 1.0 ? positive : positive * pos_weight), reduction);
}

Tensor KLDivLoss::operator()(const Tensor& log_probabilities, const Tensor& target) const {
  expect_one_shape("kl_divergence", log_probabilities, target);
  const Tensor q = wide(log_probabilities), p = wide(target);
  const auto terms = [&] {
    if (log_target) return ops::mul_no_nan(ops::exp(p), p - q);
    // The least normal number in place of smaller probabilities: the derivative of log 0 would be infinite.
    const double least = p.dtype() == DType::kFloat64 ? std::numeric_limits<double>::min()
                                                      : double{std::numeric_limits<float>::min()};
    const Tensor log_p = ops::log(ops::clip(p, least, std::numeric_limits<double>::infinity()));
    return ops::mul_no_nan(p, log_p - q);
  }();
  if (reduction != Reduction::kMean) return reduced(terms, reduction);
  SINTER_CHECK(terms.rank() > 0, "[kl_divergence] expected at least one axis but got scalars");
  return ops::sum(terms) / static_cast<double>(terms.shape()[0]);
}

}  // namespace sinter::nn
