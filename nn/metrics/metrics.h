// Metrics: how good predictions are, counted over a whole data set.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// How many rows of `logits` (N, C) have their `target` (N), int64, among the k largest. Of equal logits the
/// one with the lower index counts as larger. Waits for the device; TopKAccuracy does not. Throws
/// InvalidArgument for other shapes or dtypes, or unless 1 <= k <= C.
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

/// A mean of scalars that are on a device, such as a loss per batch; adding does not wait for it. Values that
/// are not finite do not count towards the mean, but the first of them is remembered.
class TensorMean {
 public:
  struct Totals {
    double mean = 0.0;  ///< NaN before the first finite value
    double weight = 0.0;
    int64_t values = 0;            ///< added so far, finite or not
    int64_t first_not_finite = 0;  ///< the number of the first value that was not finite, from 1; 0: none
  };

  /// `value`: a floating-point scalar; all on one device. Throws InvalidArgument for another shape or dtype,
  /// or a negative weight.
  void add(const Tensor& value, double weight = 1.0);
  /// Waits for the device.
  Totals read() const;
  void reset() { totals_ = {}; }

  /// The totals as they are at this point of the device's work, on their way to the host: for those who want
  /// them a little later without making the device wait.
  class Snapshot {
   public:
    /// Whether they have arrived; does not wait.
    bool ready() const { return copied_.done(); }
    /// Waits for what came before the snapshot, and for nothing else.
    Totals read() const;

   private:
    friend class TensorMean;
    Tensor host_;  // undefined: no value had come
    Event copied_;
  };
  Snapshot snapshot() const;

  /// A copy, "totals", for checkpoints; the inverse throws InvalidArgument for a state of another kind.
  State state() const;
  void load_state(const State& state);

 private:
  Tensor totals_;  // as of ops::update::add_to_mean_; undefined before the first value
};

/// Counts how often the right class is among the largest logits, on their device; adding does not wait for
/// it.
class TopKAccuracy {
 public:
  /// For every k up to `largest_k` > 0.
  explicit TopKAccuracy(int64_t largest_k = 5);

  /// `logits` (N, C), floating-point, and `target` (N), int64, on one device. Of equal logits the one with
  /// the lower index counts as larger; rows whose target is outside [0, C) are left out. Throws
  /// InvalidArgument for other shapes or dtypes.
  void add(const Tensor& logits, const Tensor& target);
  /// Rows so far whose target was among the k largest logits, for k = 1, 2, ..., largest_k, and last the
  /// number of all rows. Waits for the device.
  std::vector<int64_t> read() const;
  /// Of all rows, the share whose target was among the k largest logits; NaN if there are none. Waits for the
  /// device. Throws InvalidArgument unless 1 <= k <= largest_k.
  double accuracy(int64_t k = 1) const;
  void reset() { counts_ = {}; }

  /// A copy, "counts", for checkpoints; the inverse throws InvalidArgument for a state of another kind.
  State state() const;
  void load_state(const State& state);

 private:
  int64_t largest_k_;
  Tensor counts_;  // as of ops::update::count_ranks_; undefined before the first row
};

struct ConfusionMatrixOptions {
  int64_t ignore_index = -100;  ///< targets that are not counted, such as the border of masks
};

/// Counts which class is taken for which.
class ConfusionMatrix {
 public:
  /// Throws InvalidArgument unless there is a class, or if names are given but not one per class.
  explicit ConfusionMatrix(int64_t classes, std::vector<std::string> names = {},
                           const ConfusionMatrixOptions& options = {});

  /// `predictions`: logits (N, C) or (N, C, H, W), floating-point, or classes, int64. `target`: classes (N),
  /// (N, H, W) or of any shape that is that of the predicted classes, int64.
  /// Throws InvalidArgument for other shapes or dtypes, or for a class outside [0, C); then nothing is
  /// counted. Does not wait for a GPU: what is there is counted, and its classes are checked, when counts are
  /// read.
  void add(const Tensor& predictions, const Tensor& target);

  int64_t classes() const { return classes_; }
  /// How many of class `target` were taken for class `prediction`.
  int64_t count(int64_t target, int64_t prediction) const;
  int64_t total() const;

  /// The share of right predictions; NaN if there are none at all.
  double accuracy() const;
  /// The share of class `target` that was recognised (recall); NaN if there was none of it.
  double accuracy(int64_t target) const;
  /// Of what was taken for class `prediction`, the share that was of it; NaN if nothing was.
  double precision(int64_t prediction) const;
  /// The harmonic mean of a class's precision and accuracy: 2 tp / (2 tp + fp + fn), 0 where nothing of it
  /// was recognised; NaN if it neither occurred nor was taken for any.
  double f1(int64_t target) const;
  /// The mean of the classes' accuracies over those that occurred; NaN if none did.
  double balanced_accuracy() const;
  /// The mean of the classes' F1 over those that have one; NaN if none has.
  double macro_f1() const;
  /// Of what was of a class or was taken for it, the share that was both, the intersection over the union: tp
  /// / (tp + fp + fn); NaN if there is nothing of the two.
  double iou(int64_t target) const;
  /// The mean of the classes' iou over those that have one; NaN if none has.
  double mean_iou() const;

  /// A table for people: one row per class with its counts and its accuracy. Where names would make it wider
  /// than `columns`, classes are numbered. Of more than 20 classes, or where that is too wide too, the rows
  /// give the number of samples and the class they are most often confused with; long names are cut there.
  /// Names are printable().
  std::string to_string(size_t columns = 80) const;

 private:
  void count_pairs(const Tensor& predicted, const Tensor& target) const;
  const std::vector<int64_t>& counts() const;
  size_t index(int64_t target, int64_t prediction) const;
  int64_t row_total(int64_t target) const;
  int64_t column_total(int64_t prediction) const;
  std::string name(int64_t index) const;
  std::string percent(int64_t target) const;
  std::string to_table(size_t width) const;
  std::optional<std::string> to_numbered_table(size_t columns) const;
  std::string to_list(size_t columns) const;

  int64_t classes_;
  std::vector<std::string> names_;
  int64_t ignore_index_;
  // Mutable: reading counts what is still on a device.
  mutable std::vector<std::pair<Tensor, Tensor>> pending_;  // predicted and true classes
  mutable std::vector<int64_t> counts_;                     // row-major, a row per target
};

}  // namespace sinter::nn
