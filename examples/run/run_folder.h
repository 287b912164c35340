// The folder in which a run tells of itself: run.json says what it is, scalars.jsonl and a file for
// TensorBoard how it goes, curves.svg shows it, report.json says what came out.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/log/run_log.h>

#include "options.h"

namespace train_resnet {

/// What run.json says beside the options.
struct RunFacts {
  std::string data, data_kind;
  int64_t train_images = 0, test_images = 0, classes = 0;
  std::string device, device_name;
  int64_t parameters = 0;
  int64_t steps_per_epoch = 0;
};

/// Where a run goes on.
struct LogPlace {
  int64_t steps = 0;          // that were taken
  bool test_follows = false;  // an epoch ends there, whose values are logged again
};

class RunFolder {
 public:
  /// Throws Error that names the option unless everything can be written to --log-dir (or where it goes
  /// without that option), and the folder holds no other run's log.
  static void check(const Options& options);

  /// Begins the log, or goes on with it at a place. Throws IoError.
  RunFolder(const Options& options, const RunFacts& facts, const std::optional<LogPlace>& place);

  sinter::nn::RunLog& log() { return *log_; }

  /// Logs the values of an epoch after so many steps, one of which is "epoch", and draws curves.svg anew.
  /// What cannot be written is a warning.
  void add_epoch(int64_t step, std::vector<std::pair<std::string, double>> values);

  /// Writes what was logged so far, as before a checkpoint: a run that is killed and goes on from there would
  /// lack it.
  void flush();

  /// Writes report.json and what is left of the log. Throws IoError.
  void finish(const std::string& report);

 private:
  void write_description(const Options& options, const RunFacts& facts, int64_t step) const;
  void keep(const std::vector<std::pair<std::string, double>>& values);
  void draw() const;

  std::filesystem::path folder_;
  std::unique_ptr<sinter::nn::RunLog> log_;
  std::vector<std::pair<double, double>> train_loss_, test_loss_, train_accuracy_, test_accuracy_;
};

}  // namespace train_resnet
