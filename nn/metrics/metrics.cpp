#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/metrics/metrics.h>

namespace sinter::nn {
namespace {

constexpr int64_t kMostInTable = 20;
constexpr const char* kCorner = "true \\ predicted";
constexpr size_t kMostPending = 256;  // batches whose classes wait on a device
constexpr int64_t kMostPendingClasses = int64_t{1} << 24;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void check_pair(const char* tag, const Tensor& logits, const Tensor& target) {
  SINTER_CHECK(logits.rank() == 2 && is_float(logits.dtype()),
               "[{}] expected floating-point logits (N, C) but got {}", tag, logits.spec());
  SINTER_CHECK(target.shape() == Shape{logits.size(0)} && target.dtype() == DType::kInt64,
               "[{}] expected int64 targets ({},) but got {}", tag, logits.size(0), target.spec());
}

/// A copy of the only tensor of a state; throws unless it is `name` of that spec.
Tensor copied_state(const char* tag, const State& state, const std::string& name, const TensorSpec& spec) {
  const auto found = state.find(name);
  SINTER_CHECK(
      state.size() == 1 && found != state.end() && found->second.defined() && found->second.spec() == spec,
      "[{}] expected a state of '{}', {}", tag, name, spec);
  return ops::copy(found->second);
}

/// For a state, which must not change with what is added later.
Tensor host_copy(const Tensor& tensor) {
  return tensor.device().is_cpu() ? ops::copy(tensor) : tensor.to(Device::cpu());
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : kNaN;
}

/// The totals of a mean, on whichever device they are.
TensorMean::Totals totals_of(const Tensor& tensor) {
  if (!tensor.defined()) return {.mean = kNaN};
  const std::vector<double> totals = tensor.to_vector<double>();
  const double weight = totals[ops::kWeight];
  return {.mean = weight > 0.0 ? totals[ops::kWeightedSum] / weight : kNaN,
          .weight = weight,
          .values = static_cast<int64_t>(totals[ops::kValues]),
          .first_not_finite = static_cast<int64_t>(totals[ops::kFirstNotFinite])};
}

bool begins_letter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // of UTF-8
}

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_letter));
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, width_of(text)), ' ');
}

/// At most `width` letters; what is cut off is told by two dots.
std::string shortened(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  size_t letters = 0, end = 0;
  while (end < text.size() && (letters += begins_letter(text[end]) ? 1U : 0U) <= width - 2) ++end;
  return text.substr(0, end) + "..";
}

}  // namespace

int64_t top_k_correct(const Tensor& logits, const Tensor& target, int64_t k) {
  check_pair("top_k_correct", logits, target);
  SINTER_CHECK(k >= 1 && k <= logits.size(1), "[top_k_correct] expected k in [1, {}] but got {}",
               logits.size(1), k);
  TopKAccuracy counter(k);
  counter.add(logits, target);
  return counter.read()[static_cast<size_t>(k - 1)];
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

void TensorMean::add(const Tensor& value, double weight) {
  const NoGrad no_grad;
  if (!totals_.defined()) totals_ = ops::zeros({ops::kMeanTotals}, DType::kFloat64, value.device());
  if (totals_.device() != value.device()) totals_ = totals_.to(value.device());
  ops::update::add_to_mean_(totals_, value, weight);
}

TensorMean::Totals TensorMean::read() const {
  return totals_of(totals_);
}

TensorMean::Snapshot TensorMean::snapshot() const {
  Snapshot snapshot;
  if (!totals_.defined()) return snapshot;
  const Device device = totals_.device();
  if (device.is_cpu()) {
    snapshot.host_ = host_copy(totals_);
    return snapshot;
  }
  const Stream stream = current_stream(device);  // behind what has been added
  snapshot.host_ = Tensor::empty_pinned(totals_.shape(), totals_.dtype(), device);
  copy_async(snapshot.host_, totals_, stream);
  snapshot.copied_ = Event(stream);
  return snapshot;
}

TensorMean::Totals TensorMean::Snapshot::read() const {
  copied_.synchronize();
  return totals_of(host_);
}

State TensorMean::state() const {
  return {{"totals",
           totals_.defined() ? host_copy(totals_) : Tensor::zeros({ops::kMeanTotals}, DType::kFloat64)}};
}

void TensorMean::load_state(const State& state) {
  totals_ = copied_state("device_mean", state, "totals", {Shape{ops::kMeanTotals}, DType::kFloat64, {}});
}

TopKAccuracy::TopKAccuracy(int64_t largest_k) : largest_k_(largest_k) {
  SINTER_CHECK(largest_k > 0, "[top_k_accuracy] expected k > 0 but got {}", largest_k);
}

void TopKAccuracy::add(const Tensor& logits, const Tensor& target) {
  check_pair("top_k_accuracy", logits, target);
  const NoGrad no_grad;
  if (!counts_.defined()) counts_ = ops::zeros({largest_k_ + 1}, DType::kInt64, logits.device());
  if (counts_.device() != logits.device()) counts_ = counts_.to(logits.device());
  ops::update::count_ranks_(counts_, logits, target);
}

std::vector<int64_t> TopKAccuracy::read() const {
  std::vector<int64_t> sums(static_cast<size_t>(largest_k_) + 1);
  if (!counts_.defined()) return sums;
  const std::vector<int64_t> counts = counts_.to_vector<int64_t>();
  std::partial_sum(counts.begin(), counts.end(), sums.begin());
  return sums;
}

double TopKAccuracy::accuracy(int64_t k) const {
  SINTER_CHECK(k >= 1 && k <= largest_k_, "[top_k_accuracy] expected k in [1, {}] but got {}", largest_k_, k);
  const std::vector<int64_t> counts = read();
  return ratio(counts[static_cast<size_t>(k - 1)], counts.back());
}

State TopKAccuracy::state() const {
  return {
      {"counts", counts_.defined() ? host_copy(counts_) : Tensor::zeros({largest_k_ + 1}, DType::kInt64)}};
}

void TopKAccuracy::load_state(const State& state) {
  counts_ = copied_state("top_k_accuracy", state, "counts", {Shape{largest_k_ + 1}, DType::kInt64, {}});
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, std::vector<std::string> names,
                                 const ConfusionMatrixOptions& options)
    : classes_(classes), names_(std::move(names)), ignore_index_(options.ignore_index) {
  SINTER_CHECK(classes > 0, "[confusion_matrix] expected at least one class but got {}", classes);
  SINTER_CHECK(names_.empty() || static_cast<int64_t>(names_.size()) == classes,
               "[confusion_matrix] expected {} names but got {}", classes, names_.size());
  counts_.resize(static_cast<size_t>(classes) * static_cast<size_t>(classes));
}

void ConfusionMatrix::add(const Tensor& predictions, const Tensor& target) {
  Tensor predicted = predictions;
  if (is_float(predictions.dtype())) {
    SINTER_CHECK((predictions.rank() == 2 || predictions.rank() == 4) && predictions.size(1) == classes_,
                 "[confusion_matrix] expected logits (N, {0}) or (N, {0}, H, W) but got shape {1}", classes_,
                 predictions.shape());
    const NoGrad no_grad;
    predicted = ops::argmax(predictions, 1);
  }
  SINTER_CHECK(predicted.dtype() == DType::kInt64 && target.dtype() == DType::kInt64 &&
                   target.shape() == predicted.shape(),
               "[confusion_matrix] expected int64 predictions and targets of one shape but got {} and {}",
               predicted.spec(), target.spec());
  if (predicted.device().is_cpu() && target.device().is_cpu()) return count_pairs(predicted, target);
  pending_.emplace_back(predicted, target);
  // All batches being alike, so many of this one's size.
  if (pending_.size() >= kMostPending ||
      static_cast<int64_t>(pending_.size()) * target.numel() >= kMostPendingClasses) {
    counts();
  }
}

void ConfusionMatrix::count_pairs(const Tensor& predicted, const Tensor& target) const {
  const std::vector<int64_t> columns = predicted.to_vector<int64_t>();
  const std::vector<int64_t> rows = target.to_vector<int64_t>();
  const auto is_counted = [&](size_t i) { return rows[i] != ignore_index_; };
  for (size_t i = 0; i < rows.size(); ++i) {
    if (is_counted(i)) index(rows[i], columns[i]);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (is_counted(i)) ++counts_[index(rows[i], columns[i])];
  }
}

const std::vector<int64_t>& ConfusionMatrix::counts() const {
  while (!pending_.empty()) {  // one by one: a batch with a class out of range takes no other with it
    const auto [predicted, target] = std::move(pending_.back());
    pending_.pop_back();
    count_pairs(predicted, target);
  }
  return counts_;
}

size_t ConfusionMatrix::index(int64_t target, int64_t prediction) const {
  for (const int64_t value : {target, prediction}) {
    SINTER_CHECK(value >= 0 && value < classes_, "[confusion_matrix] expected classes in [0, {}) but got {}",
                 classes_, value);
  }
  return static_cast<size_t>(target * classes_ + prediction);
}

int64_t ConfusionMatrix::count(int64_t target, int64_t prediction) const {
  return counts()[index(target, prediction)];
}

int64_t ConfusionMatrix::total() const {
  return std::accumulate(counts().begin(), counts().end(), int64_t{0});
}

int64_t ConfusionMatrix::row_total(int64_t target) const {
  const auto row = counts().begin() + static_cast<std::ptrdiff_t>(index(target, 0));
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

int64_t ConfusionMatrix::column_total(int64_t prediction) const {
  int64_t total = 0;
  for (int64_t target = 0; target < classes_; ++target) total += count(target, prediction);
  return total;
}

double ConfusionMatrix::precision(int64_t prediction) const {
  return ratio(count(prediction, prediction), column_total(prediction));
}

double ConfusionMatrix::f1(int64_t target) const {
  return ratio(2 * count(target, target), row_total(target) + column_total(target));
}

double ConfusionMatrix::macro_f1() const {
  RunningMean mean;
  for (int64_t i = 0; i < classes_; ++i) {
    if (row_total(i) + column_total(i) > 0) mean.add(f1(i));
  }
  return mean.mean();
}

double ConfusionMatrix::iou(int64_t target) const {
  const int64_t both = count(target, target);
  return ratio(both, row_total(target) + column_total(target) - both);
}

double ConfusionMatrix::mean_iou() const {
  RunningMean mean;
  for (int64_t i = 0; i < classes_; ++i) {
    if (row_total(i) + column_total(i) > 0) mean.add(iou(i));
  }
  return mean.mean();
}

double ConfusionMatrix::balanced_accuracy() const {
  RunningMean mean;
  for (int64_t i = 0; i < classes_; ++i) {
    if (row_total(i) > 0) mean.add(accuracy(i));
  }
  return mean.mean();
}

std::string ConfusionMatrix::name(int64_t index) const {
  // As programs print it: else widths would be of other bytes.
  return names_.empty() ? std::to_string(index) : printable(names_[static_cast<size_t>(index)]);
}

std::string ConfusionMatrix::percent(int64_t target) const {
  return row_total(target) > 0 ? fmt::format("{:.2f} %", 100.0 * accuracy(target)) : "-";
}

std::string ConfusionMatrix::to_string(size_t columns) const {
  if (classes_ > kMostInTable) return to_list(columns);
  for (const size_t least : {size_t{5}, size_t{1}}) {
    const std::string table = to_table(least);
    if (width_of(table.substr(0, table.find('\n'))) <= columns) return table;
  }
  return to_numbered_table(columns).value_or(to_list(columns));
}

std::string ConfusionMatrix::to_table(size_t width) const {
  size_t first_width = width_of(kCorner);
  for (int64_t i = 0; i < classes_; ++i) {
    first_width = std::max(first_width, width_of(name(i)));
    width = std::max(width, width_of(name(i)));
  }
  for (const int64_t value : counts()) width = std::max(width, std::to_string(value).size());
  std::string text = padded(kCorner, first_width);
  for (int64_t i = 0; i < classes_; ++i) text += std::string(2 + width - width_of(name(i)), ' ') + name(i);
  text += "  accuracy\n";
  for (int64_t row = 0; row < classes_; ++row) {
    text += padded(name(row), first_width);
    for (int64_t column = 0; column < classes_; ++column)
      text += fmt::format("  {:>{}}", count(row, column), width);
    text += fmt::format("  {:>8}\n", percent(row));
  }
  return text;
}

std::optional<std::string> ConfusionMatrix::to_numbered_table(size_t columns) const {
  size_t width = 2;
  for (const int64_t value : counts()) width = std::max(width, std::to_string(value).size());
  const size_t of_counts = static_cast<size_t>(classes_) * (1 + width) + 10;  // and of the accuracy
  if (of_counts + width_of(kCorner) > columns) return std::nullopt;
  const auto row_name = [&](int64_t i) {
    return shortened(fmt::format("{:>2} {}", i + 1, name(i)), columns - of_counts);
  };
  size_t first_width = width_of(kCorner);
  for (int64_t i = 0; i < classes_; ++i) first_width = std::max(first_width, width_of(row_name(i)));
  std::string text = padded(kCorner, first_width);
  for (int64_t i = 0; i < classes_; ++i) text += fmt::format(" {:>{}}", i + 1, width);
  text += "  accuracy\n";
  for (int64_t row = 0; row < classes_; ++row) {
    text += padded(row_name(row), first_width);
    for (int64_t column = 0; column < classes_; ++column)
      text += fmt::format(" {:>{}}", count(row, column), width);
    text += fmt::format("  {:>8}\n", percent(row));
  }
  return text;
}

std::string ConfusionMatrix::to_list(size_t columns) const {
  // Two names stand beside 9 + 8 digits and the number of the confused ones.
  const size_t room = std::max<size_t>(columns, 60), longest = (room - 34) / 2;
  const auto short_name = [&](int64_t i) { return shortened(name(i), longest); };
  size_t width = 5;
  for (int64_t i = 0; i < classes_; ++i) width = std::max(width, width_of(short_name(i)));
  std::string text =
      fmt::format("{}  {:>9}  {:>8}  most often taken for\n", padded("class", width), "samples", "accuracy");
  for (int64_t row = 0; row < classes_; ++row) {
    int64_t other = -1;
    for (int64_t column = 0; column < classes_; ++column) {
      if (column == row || count(row, column) == 0) continue;
      if (other < 0 || count(row, column) > count(row, other)) other = column;
    }
    const std::string confused =
        other < 0 ? "-" : fmt::format("{} ({})", short_name(other), count(row, other));
    text += fmt::format("{}  {:>9}  {:>8}  {}\n", padded(short_name(row), width), row_total(row),
                        percent(row), confused);
  }
  return text;
}

}  // namespace sinter::nn
