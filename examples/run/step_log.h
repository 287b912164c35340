// What is logged between the ends of epochs: the loss and the pace of every few steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/metrics/metrics.h>

namespace sinter::examples {

/// Sums since the beginning of an epoch.
struct StepSums {
  int64_t images = 0;
  double seconds = 0.0;       // of training
  double wait_seconds = 0.0;  // of them, in which host and device waited for data
};

/// Logs means over the steps since the last record. The loss is read from the device when it has arrived on
/// the host, some steps later, so that no step waits for it.
class StepLog {
 public:
  /// Takes the values of a record: train/loss, train/learning_rate, train/images_per_second and
  /// train/data_wait_share.
  using Sink = std::function<void(int64_t step, std::vector<std::pair<std::string, double>> values)>;

  /// Of the epoch whose sums so far are these; a record at every step that `every` > 0 divides.
  StepLog(Sink sink, int64_t every, const StepSums& sums, const nn::TensorMean& loss);
  /// Where training ends by an error, what led to it is logged too.
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  /// Call it after each step, `step` being how many the run has done.
  void after_step(int64_t step, double learning_rate, const StepSums& sums, const nn::TensorMean& loss);
  /// Logs what has not arrived yet; waits for the device.
  void finish();

 private:
  struct Waiting {
    int64_t step = 0;
    std::vector<std::pair<std::string, double>> values;
    nn::TensorMean::Snapshot loss;
  };

  void write(Waiting& record);

  Sink sink_;
  int64_t every_;
  StepSums sums_;                        // at the last record
  nn::TensorMean::Snapshot first_loss_;  // where the epoch goes on
  nn::TensorMean::Totals loss_;          // at the last record that was written
  bool has_first_ = false;
  std::deque<Waiting> waiting_;
};

}  // namespace sinter::examples
