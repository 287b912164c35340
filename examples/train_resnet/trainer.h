// One training run: model, data, optimiser and schedule, and how they are saved and restored.
#pragma once

#include <memory>
#include <string>

#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/nn/schedule/schedule.h>

#include "options.h"

namespace train_resnet {

class Trainer {
 public:
  Trainer(const Options& options, sinter::Device device,
          std::shared_ptr<const sinter::nn::data::Dataset> train,
          std::shared_ptr<const sinter::nn::data::Dataset> test);

  /// Trains to the end, to --max-steps, or until interrupted() says so. Prints a progress bar and a line per
  /// epoch. Gives true if the run is complete.
  bool train();

  /// Tests the model on all test images.
  sinter::nn::ConfusionMatrix evaluate();

  /// Continues from the newest checkpoint; false if there is none.
  bool resume();

  const sinter::nn::ResNet& model() const { return model_; }

 private:
  /// What one epoch adds up; part of a checkpoint, so that a resumed epoch reports the whole.
  struct EpochStats {
    sinter::nn::RunningMean loss;
    int64_t correct = 0;
    int64_t images = 0;
    double seconds = 0.0;       // of training steps, with waiting for data
    double wait_seconds = 0.0;  // of them, waiting for data
  };

  /// Runs the rest of the present epoch; false if it was cut short.
  bool run_epoch();
  double train_step(const sinter::nn::data::Batch& batch, double learning_rate);
  void report_epoch(const sinter::nn::ConfusionMatrix& test) const;
  void save() const;
  bool should_stop() const;

  Options options_;
  sinter::Device device_;
  sinter::nn::data::Normalization normalization_;
  sinter::nn::data::DataLoader train_loader_, test_loader_;
  sinter::nn::ResNet model_;
  sinter::nn::Sgd sgd_;
  sinter::nn::Schedule schedule_;
  std::unique_ptr<sinter::nn::CheckpointFolder> checkpoints_;  // null: none are saved
  int64_t epoch_ = 0;
  int64_t step_ = 0;  // of the whole run
  EpochStats stats_;
};

/// Makes Ctrl-C (SIGINT) and SIGTERM end training after the present step, with a checkpoint; a second one
/// ends the program.
void catch_interrupts();

}  // namespace train_resnet
