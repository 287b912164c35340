// One training run: model, data, optimiser and schedule, how they are verified, saved and restored.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/nn/optim/grad_scaler.h>

#include "common/progress_bar.h"
#include "data.h"
#include "model.h"
#include "options.h"
#include "run/run_folder.h"
#include "run/step_log.h"
#include "run/step_timer.h"
#include "verifier.h"

namespace train_insightface {

/// The best that was reached so far: the mean accuracy over all sets of pairs.
struct Best {
  double accuracy = -1.0;  // below 0: nothing was verified
  int64_t step = 0;
};

class Trainer {
 public:
  /// Without `start`, the backbone begins with fresh weights.
  /// Of several ranks, each has the backbone and its part of the centres.
  Trainer(const Options& options, sinter::Device device, const TrainingData& data,
          std::vector<FacePairs> pairs, const sinter::nn::ModelMetadata& metadata,
          const std::optional<sinter::nn::State>& start, const sinter::Communicator& ranks);

  /// Goes on from a checkpoint, whose options the run has but for --epochs, unless --change-recipe is given:
  /// an epoch of other batches, or unless the data are the same, is then begun anew, and the output says so.
  /// Throws Error if the checkpoint is of another run.
  void restore(const sinter::nn::LoadedCheckpoint& checkpoint, bool same_data);

  /// Trains to the end, to --max-steps, or until stop_signal() is set; then saves a checkpoint. Prints a
  /// progress bar, a line now and then and after each epoch, and one for each set of pairs that is verified.
  /// Gives true if the run is complete. A checkpoint that cannot be saved does not end the run; the next may
  /// succeed.
  bool train();

  /// Why the last checkpoint could not be saved; empty if it was.
  /// The signal that stopped the run, on whichever rank it came; 0: none.
  int stopped_by() const { return stopped_by_; }
  const std::string& save_failure() const { return save_failure_; }
  const sinter::nn::IResNet& backbone() const { return model_.backbone; }
  const sinter::nn::ModelMetadata& metadata() const { return metadata_; }
  const sinter::nn::PartialFC& centres() const { return centres_; }
  int64_t epochs_left() const { return options_.epochs - epoch_; }
  const std::vector<VerifiedSet>& verified() const { return verified_; }
  const Best& best() const { return best_; }

  /// What this process has trained, as JSON.
  std::string report(bool complete) const;
  /// The folder in which the run tells of itself; null if it has none, or has not begun to.
  sinter::examples::RunFolder* run_folder() { return run_folder_.get(); }

 private:
  /// What one epoch adds up; part of a checkpoint, so that a resumed epoch reports the whole.
  struct EpochStats {
    sinter::nn::TensorMean loss;
    int64_t images = 0;
    double seconds = 0.0;          // of training steps, from first to last
    double compute_seconds = 0.0;  // of them, in which the device worked on a step
    double wait_seconds = 0.0;     // of them, in which the host waited for data
    int64_t skipped_before = 0;    // steps that the scaler had skipped when the epoch began
  };

  /// Makes the job or, without one, lets the libraries of a GPU choose their algorithms on a copy of the
  /// backbone, so that no step waits for it.
  void prepare();
  /// Runs all epochs that are left; false if they were cut short.
  bool train_epochs();
  /// Runs the rest of the present epoch; false if it was cut short.
  bool run_epoch();
  /// The next batch. If reading it fails, what was trained so far is saved before the error goes on.
  std::optional<sinter::nn::data::Batch> next_batch();
  /// Queues a step on the device; waits for nothing.
  void train_step(const sinter::nn::data::Batch& batch, double learning_rate);
  /// The mean loss so far. Waits for the device, and throws if training has gone wrong since the last call.
  double checked_loss() const;
  bool should_stop() const;
  int64_t total_steps() const { return options_.epochs * train_loader_.batches_per_epoch(); }

  /// Whether --verify-every asks for it at this step, and it was not done yet.
  bool verification_due() const;
  /// Verifies all sets of pairs; false if it was to stop meanwhile, and then nothing is kept.
  bool verify_all();
  /// Keeps the backbone as best.safetensors.
  void save_best();

  void open_log();
  void begin_step_log();
  void log_step(double learning_rate);
  /// Takes a record of StepLog: into the log, and now and then on the screen.
  void tell_steps(int64_t step, sinter::examples::Scalars values);
  void report_epoch() const;
  void log_epoch() const;
  void take_compute_time();

  /// Compares this rank's part of all sets of pairs; none if it was to stop meanwhile.
  std::optional<std::vector<ComparedPairs>> compare_here() const;
  /// The running statistics of rank 0 for all, which are what is saved.
  void share_statistics() const;
  /// The parameters that each rank has for itself.
  std::vector<sinter::nn::Parameter> apart() const;

  /// All ranks call it; that of rank 0 is whole.
  sinter::nn::CheckpointData checkpoint() const;
  void restore_centres(const sinter::nn::CheckpointData& data);
  void save();
  /// Takes what was asked of any rank from outside: to stop, or to save. All ranks call it, and `wait` where
  /// one that was asked may have left something out.
  void take_requests(bool wait = false);
  /// Gives false if the place does not fit, which only --change-recipe allows.
  bool restore_place(const sinter::nn::CheckpointData& data, bool same_data);

  Options options_;
  const sinter::Communicator& ranks_;
  sinter::Device device_;
  TrainingData data_;
  sinter::nn::ModelMetadata metadata_;
  std::vector<FacePairs> pairs_;
  sinter::nn::data::DataLoader train_loader_;
  sinter::nn::PartialFC centres_;
  FaceModel model_;
  sinter::nn::SGD optimizer_;
  sinter::nn::GradScaler scaler_;
  sinter::nn::Schedule schedule_;
  std::unique_ptr<sinter::nn::TrainJob> job_;                  // null: steps are eager
  std::unique_ptr<sinter::nn::CheckpointFolder> checkpoints_;  // null: none are saved
  std::string save_failure_;
  int stopped_by_ = 0;
  bool save_asked_ = false;                       // by SIGUSR1, and not done yet
  std::pair<int64_t, int64_t> saved_ = {-1, -1};  // epoch and step of the last checkpoint
  int64_t epoch_ = 0;
  int64_t step_ = 0;     // of the whole run
  int64_t trained_ = 0;  // steps that were taken: more than step_ where --change-recipe began an epoch anew
  int64_t verified_step_ = -1;  // of trained_
  Best best_;
  std::vector<VerifiedSet> verified_;  // the last results
  EpochStats stats_;
  sinter::examples::StepTimer timer_;
  std::unique_ptr<sinter::examples::RunFolder> run_folder_;  // null: without a log
  std::optional<sinter::examples::StepLog> step_log_;        // of the present epoch
  std::optional<sinter::examples::ProgressBar> bar_;         // of the present epoch
  std::chrono::steady_clock::time_point started_, told_;     // the first step of this process, the last line
  // Of this process, all epochs together.
  struct {
    int64_t steps = 0, images = 0;
    double prepare_seconds = 0.0;  // before the first step, not part of `seconds`
    double seconds = 0.0, compute_seconds = 0.0, wait_seconds = 0.0;
    size_t peak_bytes = 0;
  } total_;
};

}  // namespace train_insightface
