// One training run: model, data, optimiser and schedule, and how they are saved and restored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/ema.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/nn/schedule/schedule.h>

#include "model.h"
#include "options.h"
#include "run/run_folder.h"
#include "run/step_log.h"
#include "run/step_timer.h"
#include "setup.h"

namespace train_resnet {

using sinter::examples::RunFolder;
using sinter::examples::StepLog;
using sinter::examples::StepSums;
using sinter::examples::StepTimer;

/// How good the model is on the test images.
struct TestResult {
  sinter::nn::ConfusionMatrix confusion;
  std::optional<double>
      top5;           // share of images whose class is among the five likeliest; for over ten classes
  double loss = 0.0;  // mean, the same loss as in training
};

class Trainer {
 public:
  /// Of one rank; all of them do the same calls. Rank 0 alone writes files.
  /// `metadata` are the weights', which begin as those of `weights`, or fresh.
  Trainer(const Options& options, sinter::Device device, const Data& data,
          const sinter::nn::ModelMetadata& metadata,
          const std::optional<sinter::examples::WeightsFile>& weights, const sinter::Communicator& ranks);

  /// Goes on from a checkpoint, whose options the run has but for --epochs, unless --change-recipe is given:
  /// what then does not fit, such as another optimiser's state or the place in an epoch of other batches,
  /// starts afresh, and the output says so; so does the epoch unless the data are the same. Throws Error if
  /// the checkpoint is of another run.
  void restore(const sinter::nn::LoadedCheckpoint& checkpoint, bool same_data);
  /// Takes nothing but the model from a checkpoint.
  void restore_model(const sinter::nn::LoadedCheckpoint& checkpoint);

  /// Trains to the end, to --max-steps, or until stop_signal() is set; then saves a checkpoint. Prints a
  /// progress bar and a line per epoch. Gives true if the run is complete. A checkpoint that cannot be saved
  /// does not end the run; the next may succeed.
  bool train();

  /// Who decodes the JPEGs to train on.
  std::string decoder() const { return train_loader_.decoder_name(); }

  /// Says how many images were damaged, if more are than were told.
  void tell_damaged() const { damaged_->tell(); }

  /// Why the last checkpoint could not be saved; empty if it was.
  const std::string& save_failure() const { return save_failure_; }

  /// The signal that the ranks have agreed to stop for; 0 if there was none.
  int stopped_by() const { return stopped_by_; }

  /// Tests the model on all test images; nothing if a rank is asked to stop before the end.
  std::optional<TestResult> evaluate();

  const sinter::nn::ResNet& model() const { return model_; }
  const sinter::nn::ModelMetadata& metadata() const { return metadata_; }
  /// The weights that evaluate() tests: the averages, if there are any.
  sinter::nn::State tested_weights() const {
    return ema_ != nullptr ? ema_->averaged_state() : model_.state();
  }
  int64_t epochs_left() const { return *options_.epochs - epoch_; }

  /// What this process has trained, and `test` if the run is complete, as JSON.
  std::string report(const TestResult* test) const;
  /// The best test of the run and its epoch, as a line; empty if none was made.
  std::string best_so_far() const;
  /// The folder in which the run tells of itself; null if it has none, or has not begun to.
  RunFolder* run_folder() { return run_folder_.get(); }

 private:
  /// What one epoch adds up; part of a checkpoint, so that a resumed epoch reports the whole. What depends on
  /// the results of steps adds up on the device, which training then need not wait for.
  struct EpochStats {
    sinter::nn::TensorMean loss;
    sinter::nn::TopKAccuracy ranks{1};
    int64_t images = 0;
    double seconds = 0.0;          // of training steps, from first to last
    double compute_seconds = 0.0;  // of them, in which the device worked on a step
    double wait_seconds = 0.0;     // of them, in which host and device waited for data
    int64_t skipped_before = 0;    // steps that the scaler had skipped when the epoch began
  };

  /// Makes the job or, without one, lets the libraries of a GPU choose their algorithms on a copy of the
  /// model, so that no step waits for it.
  void prepare();
  void choose_algorithms(const sinter::Shape& images) const;
  /// Runs all epochs that are left; false if they were cut short.
  bool train_epochs();
  /// Runs the rest of the present epoch; false if it was cut short.
  bool run_epoch();
  /// The next batch. If reading it fails, what was trained so far is saved before the error goes on.
  std::optional<sinter::nn::data::Batch> next_batch();
  /// Queues the work on a batch, which may be one of several of a step, on the device, and counts it;
  /// waits for nothing.
  void train_batch(const sinter::nn::data::Batch& batch, double learning_rate, bool begins_step,
                   bool ends_step);
  /// Steps of an epoch; what is left of its batches makes none.
  int64_t steps_per_epoch() const { return train_loader_.batches_per_epoch() / options_.accumulate; }
  /// The mean loss so far. Waits for the device, and throws if training has gone wrong since the last call.
  double checked_loss();
  /// For the message of a run that has gone wrong: the layer that gives the first bad value.
  std::string where_it_went_wrong();
  /// Called before each step: starts and ends the timing of --profile.
  void profile_steps();
  /// Prints what was timed, if anything is being timed, and writes --trace.
  void finish_profile();
  /// Warns if the run ended before the steps that --profile asks for.
  void check_profile() const;
  /// Opens the run's log, if it has one and steps are left.
  void open_log();
  nlohmann::ordered_json describe_run() const;
  /// Called before the first step of an epoch, or of its rest, and after each step.
  void begin_step_log();
  void log_step(double learning_rate);
  void report_epoch(const TestResult& test) const;
  void log_epoch(const TestResult& test) const;
  /// Saves the weights as best.safetensors beside the checkpoints if no test before was better.
  void keep_best(const TestResult& test);
  /// Adds the time of the steps since the last call; waits for the device.
  void take_compute_time();

  sinter::nn::CheckpointData checkpoint() const;
  /// All ranks call it; one writes.
  /// Model and averages of a checkpoint.
  void restore_weights(const sinter::nn::LoadedCheckpoint& checkpoint);
  void save();
  /// Takes what was asked of any rank from outside: to stop, or to save. All ranks call it, and `wait` where
  /// one that was asked may have left something out.
  void take_requests(bool wait = false);
  /// `counts`: of the epoch, over all ranks.
  void write_checkpoint(const sinter::Tensor& counts);
  /// Each gives false if the checkpoint's part does not fit, which only --change-recipe allows.
  bool restore_optimizer(const sinter::nn::CheckpointData& data);
  bool restore_place(const sinter::nn::CheckpointData& data, bool same_data);
  bool should_stop() const;

  /// The epoch's counts over all ranks.
  std::vector<int64_t> rank_counts() const;
  /// What the ranks' parts of the test come to.
  void join_test(TestResult& result, std::vector<int64_t>& correct) const;

  Options options_;
  const sinter::Communicator& ranks_;
  sinter::Device device_;
  sinter::nn::ModelMetadata metadata_;
  sinter::nn::data::DataLoader train_loader_, test_loader_;
  sinter::nn::ResNet model_;
  std::unique_ptr<sinter::nn::Optimizer> optimizer_;
  sinter::nn::GradScaler scaler_;
  sinter::nn::Schedule schedule_;
  std::unique_ptr<sinter::nn::EMA> ema_;                       // null: no averages
  std::optional<sinter::nn::ResNet> averaged_;                 // what they are tested in
  std::unique_ptr<sinter::nn::TrainJob> job_;                  // null: steps are eager
  std::unique_ptr<sinter::nn::CheckpointFolder> checkpoints_;  // null: none are saved
  std::string save_failure_;
  std::pair<int64_t, int64_t> saved_ = {-1, -1};  // epoch and step of the last checkpoint
  int stopped_by_ = 0;
  bool save_asked_ = false;  // by SIGUSR1, and not done yet
  int64_t epoch_ = 0;
  int64_t step_ = 0;     // of the whole run
  int64_t trained_ = 0;  // steps that were taken: more than step_ where --change-recipe began an epoch anew
  bool in_series_ = false;  // some batches of a step are done, others not
  struct {
    double accuracy = -1.0;  // below 0: no epoch has been tested
    int64_t step = 0;
    int64_t epoch = 0;  // 0: a checkpoint of an earlier version did not know
  } best_;
  EpochStats stats_;
  StepTimer timer_;
  int64_t test_images_;        // of all ranks
  int64_t epoch_correct_ = 0;  // of the epoch's training images, over all ranks
  std::string data_name_, data_kind_, test_fingerprint_;
  std::shared_ptr<sinter::examples::DamagedImages> damaged_;
  std::unique_ptr<RunFolder> run_folder_;  // null: without a log
  std::optional<StepLog> step_log_;        // of the present epoch
  struct {
    std::unique_ptr<sinter::OpProfile> calls;  // while steps are timed
    double seconds_before = 0.0;               // total_.compute_seconds when the steps before it began
    double step_us = 0.0;                      // what one of these steps took
  } profile_;
  // Of this process, all epochs together.
  struct {
    int64_t steps = 0, images = 0;
    double prepare_seconds = 0.0;  // before the first step, not part of `seconds`
    double seconds = 0.0, compute_seconds = 0.0, wait_seconds = 0.0;
    size_t peak_bytes = 0;
  } total_;
};

}  // namespace train_resnet
