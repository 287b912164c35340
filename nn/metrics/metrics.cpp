#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <sinter/core/op/node.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/topk/topk.h>

namespace sinter::nn {
namespace {

constexpr int64_t kMostInTable = 20;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void check_pair(const char* tag, const Tensor& logits, const Tensor& target) {
  SINTER_CHECK(logits.rank() == 2 && is_float(logits.dtype()),
               "[{}] expected floating-point logits (N, C) but got {}", tag, logits.spec());
  SINTER_CHECK(target.shape() == Shape{logits.size(0)} && target.dtype() == DType::kInt64,
               "[{}] expected int64 targets ({},) but got {}", tag, logits.size(0), target.spec());
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : kNaN;
}

}  // namespace

int64_t top_k_correct(const Tensor& logits, const Tensor& target, int64_t k) {
  check_pair("top_k_correct", logits, target);
  SINTER_CHECK(k >= 1 && k <= logits.size(1), "[top_k_correct] expected k in [1, {}] but got {}",
               logits.size(1), k);
  const NoGrad no_grad;
  const Tensor best = k == 1 ? ops::argmax(logits, 1, true) : ops::topk(logits, k, 1).indices;
  const Tensor hits = ops::equal(best, ops::reshape(target, {target.size(0), 1}));
  return static_cast<int64_t>(ops::sum(ops::cast(hits, DType::kInt64)).item());
}

void RunningMean::add(double value, double weight) {
  SINTER_CHECK(weight >= 0.0, "[running_mean] expected a weight >= 0 but got {}", weight);
  if (weight == 0.0) return;
  sum_ += value * weight;
  weight_ += weight;
}

double RunningMean::mean() const {
  return weight_ > 0.0 ? sum_ / weight_ : kNaN;
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, std::vector<std::string> names)
    : classes_(classes), names_(std::move(names)) {
  SINTER_CHECK(classes > 0, "[confusion_matrix] expected at least one class but got {}", classes);
  SINTER_CHECK(names_.empty() || static_cast<int64_t>(names_.size()) == classes,
               "[confusion_matrix] expected {} names but got {}", classes, names_.size());
  counts_.resize(static_cast<size_t>(classes) * static_cast<size_t>(classes));
}

void ConfusionMatrix::add(const Tensor& predictions, const Tensor& target) {
  Tensor predicted = predictions;
  if (is_float(predictions.dtype())) {
    check_pair("confusion_matrix", predictions, target);
    SINTER_CHECK(predictions.size(1) == classes_,
                 "[confusion_matrix] expected logits of {} classes but got shape {}", classes_,
                 predictions.shape());
    const NoGrad no_grad;
    predicted = ops::argmax(predictions, 1);
  }
  SINTER_CHECK(predicted.rank() == 1 && predicted.dtype() == DType::kInt64 &&
                   target.dtype() == DType::kInt64 && target.shape() == predicted.shape(),
               "[confusion_matrix] expected int64 predictions and targets (N) but got {} and {}",
               predicted.spec(), target.spec());
  const std::vector<int64_t> columns = predicted.to_vector<int64_t>();
  const std::vector<int64_t> rows = target.to_vector<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i) index(rows[i], columns[i]);
  for (size_t i = 0; i < rows.size(); ++i) ++counts_[index(rows[i], columns[i])];
}

size_t ConfusionMatrix::index(int64_t target, int64_t prediction) const {
  for (const int64_t value : {target, prediction}) {
    SINTER_CHECK(value >= 0 && value < classes_, "[confusion_matrix] expected classes in [0, {}) but got {}",
                 classes_, value);
  }
  return static_cast<size_t>(target * classes_ + prediction);
}

int64_t ConfusionMatrix::count(int64_t target, int64_t prediction) const {
  return counts_[index(target, prediction)];
}

int64_t ConfusionMatrix::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

int64_t ConfusionMatrix::row_total(int64_t target) const {
  const auto row = counts_.begin() + static_cast<std::ptrdiff_t>(index(target, 0));
  return std::accumulate(row, row + static_cast<std::ptrdiff_t>(classes_), int64_t{0});
}

double ConfusionMatrix::accuracy() const {
  int64_t right = 0;
  for (int64_t i = 0; i < classes_; ++i) right += count(i, i);
  return ratio(right, total());
}

double ConfusionMatrix::accuracy(int64_t target) const {
  return ratio(count(target, target), row_total(target));
}

double ConfusionMatrix::balanced_accuracy() const {
  RunningMean mean;
  for (int64_t i = 0; i < classes_; ++i) {
    if (row_total(i) > 0) mean.add(accuracy(i));
  }
  return mean.mean();
}

std::string ConfusionMatrix::name(int64_t index) const {
  return names_.empty() ? std::to_string(index) : names_[static_cast<size_t>(index)];
}

std::string ConfusionMatrix::percent(int64_t target) const {
  return row_total(target) > 0 ? fmt::format("{:.2f} %", 100.0 * accuracy(target)) : "-";
}

std::string ConfusionMatrix::to_string() const {
  return classes_ <= kMostInTable ? to_table() : to_list();
}

std::string ConfusionMatrix::to_table() const {
  constexpr const char* kCorner = "true \\ predicted";
  size_t first_width = std::string(kCorner).size();
  size_t width = 5;
  for (int64_t i = 0; i < classes_; ++i) {
    first_width = std::max(first_width, name(i).size());
    width = std::max(width, name(i).size());
  }
  for (const int64_t value : counts_) width = std::max(width, std::to_string(value).size());
  std::string text = fmt::format("{:<{}}", kCorner, first_width);
  for (int64_t i = 0; i < classes_; ++i) text += fmt::format("  {:>{}}", name(i), width);
  text += "  accuracy\n";
  for (int64_t row = 0; row < classes_; ++row) {
    text += fmt::format("{:<{}}", name(row), first_width);
    for (int64_t column = 0; column < classes_; ++column)
      text += fmt::format("  {:>{}}", count(row, column), width);
    text += fmt::format("  {:>8}\n", percent(row));
  }
  return text;
}

std::string ConfusionMatrix::to_list() const {
  size_t width = 5;
  for (int64_t i = 0; i < classes_; ++i) width = std::max(width, name(i).size());
  std::string text =
      fmt::format("{:<{}}  {:>9}  {:>8}  most often taken for\n", "class", width, "samples", "accuracy");
  for (int64_t row = 0; row < classes_; ++row) {
    int64_t other = -1;
    for (int64_t column = 0; column < classes_; ++column) {
      if (column == row || count(row, column) == 0) continue;
      if (other < 0 || count(row, column) > count(row, other)) other = column;
    }
    const std::string confused = other < 0 ? "-" : fmt::format("{} ({})", name(other), count(row, other));
    text +=
        fmt::format("{:<{}}  {:>9}  {:>8}  {}\n", name(row), width, row_total(row), percent(row), confused);
  }
  return text;
}

}  // namespace sinter::nn
