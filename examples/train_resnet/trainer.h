// One training run: model, data, optimiser and schedule, and how they are saved and restored.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <sinter/core/op/profile.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/nn/schedule/schedule.h>

#include "options.h"

namespace train_resnet {

/// How good the model is on the test images.
struct TestResult {
  sinter::nn::ConfusionMatrix confusion;
  std::optional<double>
      top5;  // share of images whose class is among the five likeliest; for over ten classes
};

class Trainer {
 public:
  Trainer(const Options& options, sinter::Device device,
          std::shared_ptr<const sinter::nn::data::Dataset> train,
          std::shared_ptr<const sinter::nn::data::Dataset> test);

  /// Trains to the end, to --max-steps, or until interrupted() says so. Prints a progress bar and a line per
  /// epoch. Gives true if the run is complete.
  bool train();

  /// Tests the model on all test images.
  TestResult evaluate();

  /// Continues from the newest checkpoint; false if there is none.
  bool resume();

  const sinter::nn::ResNet& model() const { return model_; }

  /// Writes --report: what this process has trained, and `test` if the run is complete.
  void write_report(const TestResult* test) const;

 private:
  /// What one epoch adds up; part of a checkpoint, so that a resumed epoch reports the whole. What depends on
  /// the results of steps adds up on the device, which training then need not wait for.
  struct EpochStats {
    sinter::nn::DeviceMean loss;
    sinter::nn::TopKCounter ranks{1};
    int64_t images = 0;
    double seconds = 0.0;        // of training steps, with waiting for data
    double wait_seconds = 0.0;   // of them, waiting for data
    int64_t skipped_before = 0;  // steps that the scaler had skipped when the epoch began
  };

  /// Lets the libraries of a GPU choose their algorithms on a copy of the model, so that no step waits for
  /// it.
  void prepare();
  /// Runs the rest of the present epoch; false if it was cut short.
  bool run_epoch();
  /// Queues a step on the device; waits for nothing.
  void train_step(const sinter::nn::data::Batch& batch, double learning_rate);
  /// The mean loss so far. Waits for the device, and throws if training has gone wrong since the last call.
  double checked_loss() const;
  /// Called before each step: starts and ends the timing of --profile.
  void profile_steps();
  void finish_profile();
  void report_epoch(const TestResult& test) const;
  void save() const;
  bool should_stop() const;

  Options options_;
  sinter::Device device_;
  sinter::nn::data::Normalization normalization_;
  sinter::nn::data::DataLoader train_loader_, test_loader_;
  sinter::nn::ResNet model_;
  sinter::nn::Sgd sgd_;
  sinter::nn::GradScaler scaler_;
  sinter::nn::Schedule schedule_;
  std::unique_ptr<sinter::nn::CheckpointFolder> checkpoints_;  // null: none are saved
  int64_t epoch_ = 0;
  int64_t step_ = 0;  // of the whole run
  EpochStats stats_;
  std::unique_ptr<sinter::OpProfile> profile_;  // while steps are timed
  // Of this process, all epochs together.
  struct {
    int64_t steps = 0, images = 0;
    double prepare_seconds = 0.0;  // before the first step, not part of `seconds`
    double seconds = 0.0, wait_seconds = 0.0;
    size_t peak_bytes = 0;
  } total_;
};

/// Makes Ctrl-C (SIGINT) and SIGTERM end training after the present step, with a checkpoint; a second one
/// ends the program.
void catch_interrupts();

}  // namespace train_resnet
