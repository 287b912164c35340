// What is logged between the ends of epochs: the loss and the pace of every few steps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/log/run_log.h>
#include <sinter/nn/metrics/metrics.h>

namespace train_resnet {

/// Sums since the beginning of an epoch.
struct StepSums {
  int64_t images = 0;
  double seconds = 0.0;       // of training
  double wait_seconds = 0.0;  // of them, in which the host waited for data
};

/// Logs means over the steps since the last record. The loss is read from the device when it has arrived on
/// the host, some steps later, so that no step waits for it.
class StepLog {
 public:
  /// Of the epoch whose sums so far are these; a record at every step that `every` > 0 divides. `log` must
  /// live as long.
  StepLog(sinter::nn::RunLog& log, int64_t every, const StepSums& sums, const sinter::nn::DeviceMean& loss);
  /// Where training ends by an error, what led to it is logged too.
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  /// Call it after each step, `step` being how many the run has done.
  void after_step(int64_t step, double learning_rate, const StepSums& sums,
                  const sinter::nn::DeviceMean& loss);
  /// Logs what has not arrived yet; waits for the device.
  void finish();

 private:
  struct Waiting {
    int64_t step = 0;
    std::vector<std::pair<std::string, double>> values;
    sinter::nn::DeviceMean::Snapshot loss;
  };

  void write(Waiting& record);

  sinter::nn::RunLog& log_;
  int64_t every_;
  StepSums sums_;                                // at the last record
  sinter::nn::DeviceMean::Snapshot first_loss_;  // where the epoch goes on
  sinter::nn::DeviceMean::Totals loss_;          // at the last record that was written
  bool has_first_ = false;
  std::deque<Waiting> waiting_;
};

}  // namespace train_resnet
