// Metrics: how good predictions are, counted over a whole data set.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

/// How many rows of `logits` (N, C) have their `target` (N), int64, among the k largest. Of equal logits the
/// one with the lower index counts as larger. Waits for the device. Throws InvalidArgument for other shapes
/// or dtypes, or unless 1 <= k <= C.
int64_t top_k_correct(const Tensor& logits, const Tensor& target, int64_t k = 1);

/// A mean of values with weights, such as a loss per batch and its size.
class RunningMean {
 public:
  /// Throws InvalidArgument for a negative weight.
  void add(double value, double weight = 1.0);
  /// NaN before the first value.
  double mean() const;
  double weight() const { return weight_; }
  void reset() { *this = {}; }

 private:
  double sum_ = 0.0;
  double weight_ = 0.0;
};

/// Counts which class is taken for which.
class ConfusionMatrix {
 public:
  /// Throws InvalidArgument unless there is a class, or if names are given but not one per class.
  explicit ConfusionMatrix(int64_t classes, std::vector<std::string> names = {});

  /// `predictions`: logits (N, C), floating-point, or classes (N), int64. `target`: classes (N), int64. Waits
  /// for the device. Throws InvalidArgument for other shapes or dtypes, or for a class outside [0, C); then
  /// nothing is counted.
  void add(const Tensor& predictions, const Tensor& target);

  int64_t classes() const { return classes_; }
  /// How many of class `target` were taken for class `prediction`.
  int64_t count(int64_t target, int64_t prediction) const;
  int64_t total() const;

  /// The share of right predictions; NaN if there are none at all.
  double accuracy() const;
  /// The share of class `target` that was recognised (recall); NaN if there was none of it.
  double accuracy(int64_t target) const;
  /// The mean of the classes' accuracies over those that occurred; NaN if none did.
  double balanced_accuracy() const;

  /// A table for people: one row per class with its counts and its accuracy. At most 20 classes show their
  /// counts; of more, the rows give the number of samples and the class they are most often confused with.
  std::string to_string() const;

 private:
  size_t index(int64_t target, int64_t prediction) const;
  int64_t row_total(int64_t target) const;
  std::string name(int64_t index) const;
  std::string percent(int64_t target) const;
  std::string to_table() const;
  std::string to_list() const;

  int64_t classes_;
  std::vector<std::string> names_;
  std::vector<int64_t> counts_;  // row-major, a row per target
};

}  // namespace sinter::nn
