#include "class_loss.h"

#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

#include "common/text.h"

namespace train_resnet {

using namespace sinter;

namespace {

/// images / (classes * images of the class).
std::vector<double> balanced_weights(const nn::data::Dataset& train) {
  const std::vector<int64_t> labels = train.labels();
  if (labels.empty())
    throw InvalidArgument(
        "--class-weights balanced: these data tell no labels; give a number for each class");
  std::vector<double> counts(static_cast<size_t>(train.num_classes()), 0.0);
  for (const int64_t label : labels) counts.at(static_cast<size_t>(label)) += 1.0;
  const double share = static_cast<double>(labels.size()) / static_cast<double>(counts.size());
  for (double& count : counts) {
    if (count == 0.0) {
      throw InvalidArgument(
          fmt::format("--class-weights balanced: class {} has no training images", &count - counts.data()));
    }
    count = share / count;
  }
  return counts;
}

Tensor class_weights(const Options& options, const nn::data::Dataset& train, Device device) {
  const std::string& text = options.loss.class_weights;
  if (text.empty()) return {};
  const std::vector<double> weights =
      text == "balanced" ? balanced_weights(train) : examples::numbers_of("--class-weights", text);
  if (static_cast<int64_t>(weights.size()) != train.num_classes()) {
    throw InvalidArgument(fmt::format("--class-weights gives {}, the data has {}",
                                      examples::counted(weights.size(), "number"),
                                      examples::counted(train.num_classes(), "class")));
  }
  const std::vector<float> values(weights.begin(), weights.end());
  return Tensor::from_values(values, {train.num_classes()}).to(device);
}

}  // namespace

Tensor ClassLoss::operator()(const Tensor& logits, const Tensor& target) const {
  if (!is_binary)
    return nn::CrossEntropyLoss{.label_smoothing = label_smoothing, .weight = weight}(logits, target);
  const Tensor x = ops::cast(logits, accumulate_dtype(logits.dtype()));
  const int64_t classes = x.size(1);
  Tensor t =
      is_float(target.dtype()) ? ops::cast(target, x.dtype()) : ops::one_hot(target, classes, x.dtype());
  if (label_smoothing > 0.0)
    t = ops::affine(t, 1.0 - label_smoothing, label_smoothing / static_cast<double>(classes));
  if (bce_threshold > 0.0)
    t = ops::cast(ops::greater(t, ops::full({}, bce_threshold, x.dtype(), x.device())), x.dtype());
  if (!weight.defined()) return nn::BCEWithLogitsLoss{}(x, t);
  return ops::mean(ops::mul_no_nan(ops::cast(weight, x.dtype()),
                                   nn::BCEWithLogitsLoss{.reduction = nn::Reduction::kNone}(x, t)));
}

ClassLoss make_loss(const Options& options, const nn::data::Dataset& train, Device device) {
  return {.is_binary = options.loss.is_binary(),
          .label_smoothing = *options.label_smoothing,
          .bce_threshold = options.loss.bce_threshold,
          .weight = class_weights(options, train, device)};
}

}  // namespace train_resnet
