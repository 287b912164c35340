// One training run, as far as it is the same whatever is trained: epochs of steps, how they are timed,
// logged, stopped, saved and gone on with.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/profile/profile.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/nn/optim/ema.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/nn/schedule/schedule.h>

#include "common/progress_bar.h"
#include "run/damaged_images.h"
#include "run/gpu_meter.h"
#include "run/run_folder.h"
#include "run/step_log.h"
#include "run/step_timer.h"
#include "trainer/timing_notice.h"
#include "trainer/trainer_options.h"

namespace sinter::examples {

/// The file of the best weights, in the folder of checkpoints.
inline constexpr const char* kBestName = "best.safetensors";

/// What is trained on, and how often.
struct TrainingPlan {
  std::shared_ptr<const nn::data::Dataset> images;
  nn::data::DataLoaderOptions loader;
  std::string name, kind;
  std::string title;  // of --report-html
  std::shared_ptr<DamagedImages> damaged;
};

/// The best test so far.
struct BestTest {
  double accuracy = -1.0;  // below 0: there was none
  int64_t step = 0;
  int64_t epoch = 0;  // 0: it is not known
};

/// The part of the tests that a plan tries.
struct TestSample {
  int64_t images = 0;  // in it, on each rank; 0: there are no tests
  int64_t of = 0;      // in a whole test, on each rank
  int64_t batch = 0;   // how many are tested at once; 0: as many as a batch has
};

/// Of one rank; all of them do the same calls. Rank 0 alone writes files.
class TrainerBase {
 public:
  virtual ~TrainerBase() = default;
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  /// Trains to the end, to --max-steps, or until stop_signal() is set; then saves a checkpoint. Prints a
  /// progress bar, and a line per epoch. Gives true if the run is complete. A checkpoint that cannot be saved
  /// does not end the run; the next may succeed. Warns if the run ended before the steps that --profile asks
  /// for.
  bool train();

  /// Prints what the run will take: memory, and, by steps that change the weights, time and energy. The
  /// trainer's tests are `sample`.
  void tell_plan(const TestSample& sample);
  /// The largest batch of all ranks that the device's memory holds, told in a line; all ranks get one number.
  /// Throws Error if it holds none.
  int64_t settled_batch(const TestSample& sample);

  /// The signal that the ranks have agreed to stop for; 0 if there was none.
  int stopped_by() const { return stopped_by_; }
  /// Why the last checkpoint could not be saved; empty if it was.
  const std::string& save_failure() const { return save_failure_; }
  /// Whether best.safetensors holds the weights of the best test.
  bool best_is_saved() const { return best_.accuracy >= 0 && best_failure_.empty(); }
  /// Why best.safetensors could not be saved; empty if it was.
  const std::string& best_failure() const { return best_failure_; }
  /// Says how many images were damaged, if more are than were told.
  void tell_damaged() const { plan_.damaged->tell(); }
  const nn::ModelMetadata& metadata() const { return metadata_; }
  int64_t epochs_left() const { return *common_.epochs - epoch_; }
  const BestTest& best() const { return best_; }
  /// Who decodes the JPEGs to train on.
  std::string decoder() const { return train_loader_.decoder_name(); }
  /// The weights that are tested and saved: the averages, if there are any.
  nn::State tested_weights() const;
  /// The folder in which the run tells of itself; null if it has none, or has not begun to.
  RunFolder* run_folder() { return run_folder_.get(); }

 protected:
  /// What one epoch adds up; part of a checkpoint, so that a resumed epoch reports the whole. The loss adds
  /// up on the device, which training then need not wait for.
  struct EpochStats {
    nn::TensorMean loss;
    int64_t images = 0;
    double seconds = 0.0;          // of training steps, from first to last
    double compute_seconds = 0.0;  // of them, in which the device worked on a step
    double wait_seconds = 0.0;     // of them, in which host and device waited for data
    int64_t skipped_before = 0;    // steps that the scaler had skipped when the epoch began
  };
  /// What the log shows of a run, beside what all runs tell.
  struct LogPlan {
    nlohmann::ordered_json description;
    Over over;  ///< what curves.svg stands over
  };

  /// `options` must outlive the trainer.
  TrainerBase(const TrainerOptions& options, Device device, const TrainingPlan& plan,
              const nn::ModelMetadata& metadata, const Communicator& ranks);

  virtual const nn::ModuleBase& module() const = 0;
  virtual Recipe recipe() const = 0;
  /// Makes the job or, without one, lets the libraries of a GPU choose their algorithms, so that no step
  /// waits for it.
  virtual void prepare() = 0;
  /// Before the steps of an epoch, or of what is left of it.
  virtual void begin_epoch() {}
  virtual void before_step() {}
  /// Whether all batches of a step are read before the first of them is trained on: ahead() has the others.
  virtual bool reads_ahead() const { return false; }
  /// Queues the work on a batch, which may be one of several of a step, on the device; waits for nothing.
  /// Gives the loss of all ranks.
  virtual Tensor train_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step,
                             bool ends_step) = 0;
  /// Whether a test is due amid an epoch; and makes it: false if the run is to stop.
  virtual bool test_due() const { return false; }
  virtual bool test() { return true; }
  /// Tests and tells what an epoch has reached, if it is `whole`; false if it is not, or the run is to stop.
  virtual bool finish_epoch(bool whole) = 0;
  /// Whether a checkpoint may have been saved between the end of an epoch and its test.
  virtual bool tests_each_epoch() const { return false; }
  /// Makes a step of a batch op by op, and its gradients, but no update: to be looked at.
  virtual void rehearse(const nn::data::Batch& batch) = 0;
  /// What a step of this rank takes, of a batch of all ranks.
  virtual std::vector<TensorSpec> batch_specs(int64_t batch) const = 0;
  /// Makes a test, and tells nobody; how often a run makes one.
  virtual void try_test() = 0;
  virtual int64_t tests_of_run() const { return *common_.epochs; }
  virtual void clear_stats() { stats_ = {}; }
  virtual LogPlan log_plan() const = 0;
  /// Whether there is a use for records of the log of steps; and takes one.
  virtual bool logs_steps() const { return run_folder_ != nullptr; }
  virtual void tell_steps(int64_t step, Scalars values);
  /// All ranks call it; that of rank 0 is whole.
  virtual nn::CheckpointData checkpoint() = 0;

  int64_t steps_per_epoch() const { return train_loader_.batches_per_epoch() / common_.accumulate; }
  int64_t total_steps() const { return *common_.epochs * steps_per_epoch(); }
  const std::deque<nn::data::Batch>& ahead() const { return ahead_; }

  /// Sets up how weights change, with an optimiser of `groups`; once the model is on its device, and before
  /// ranks take the weights of rank 0. `tested` is what averages are kept of. The first result of `function`,
  /// which calls `model`, is the loss. Each rank has its own part of the parameters `apart`. A job keeps the
  /// graphs of at most `max_graphs` shapes.
  void learn(const nn::ModuleBase& model, const nn::AnyModule& tested, nn::JobFunction function,
             std::vector<nn::Parameter> apart = {}, int max_graphs = nn::TrainJobOptions().max_graphs);
  /// A batch of a step, by the job or op by op. Gives the loss of all ranks; outputs_ has what else
  /// `function` gave.
  Tensor learn_from(std::initializer_list<Tensor> inputs, double learning_rate, bool begins_step,
                    bool ends_step);
  /// Throws Error unless all ranks have the same weights.
  void check_ranks_agree() const;
  /// What is tested: the averages, if there are any, in a model of their own.
  const nn::AnyModule& tested_model() const;

  bool should_stop() const;
  /// Takes what was asked of any rank from outside: to stop, or to save. All ranks call it, and `wait` where
  /// one that was asked may have left something out.
  void take_requests(bool wait = false);
  /// The running statistics of rank 0 for all, which are what is tested and saved.
  void share_statistics(const nn::ModuleBase& model) const;
  /// Adds the time of the steps since the last call; waits for the device.
  void take_compute_time();

  /// Adds a line to --log.
  void log_line(const char* header, const std::string& row) const;
  /// What the epoch adds to the log.
  Scalars epoch_scalars() const;
  /// What this process has trained, as every report tells it.
  nlohmann::ordered_json report_common(bool complete) const;

  /// What every checkpoint holds.
  nn::CheckpointData checkpoint_common() const;
  /// Takes averages from a checkpoint, whose weights the model has. Those that --change-recipe has brought
  /// begin with these.
  void restore_averages(const nn::CheckpointData& data);
  /// Gives false, and starts afresh, if the optimiser is another than in the recipe `before`, or the state
  /// does not fit, which only --change-recipe allows.
  bool restore_optimizer(const nn::State& state, const Recipe& before);
  void save();
  /// Takes the accuracy of a test. The weights of the best so far are saved as best.safetensors beside the
  /// checkpoints, by the first of several ranks; those that could not be are kept, and tried again by save().
  void take_test(double accuracy);
  /// Whether best_weights() are asked for at the end.
  virtual bool keeps_best_weights() const { return false; }
  /// The weights of the best test on the host, or none if there was no test.
  const nn::State& best_weights() const { return best_weights_; }
  /// Takes the best weights of the run up to here from its folder, behind restore_counts(). If they are not
  /// there, warns, and no test up to here counts.
  void restore_best();
  /// Takes epoch, step and best test. Throws InvalidArgument if --epochs are done.
  void restore_counts(const nn::CheckpointData& data);
  /// Gives false if the place in the epoch does not fit, which only --change-recipe allows, or the data are
  /// not the same: the epoch is then begun anew.
  bool restore_place(const nn::CheckpointData& data, bool same_data);
  /// Says what was resumed, with notes of the trainer's own.
  void tell_resumed(const nn::LoadedCheckpoint& checkpoint, const std::vector<std::string>& notes,
                    bool same_place, const std::string& epochs_before) const;
  /// What is on the disk already need not be saved again.
  void note_saved() { saved_ = {epoch_, step_}; }

 private:
  /// Whether the run is complete before its last epoch. Asked between epochs; all ranks say the same.
  bool ends_early() const;
  /// Between the best test and the last.
  int64_t epochs_since_best() const { return tested_epoch_ - best_.epoch; }
  /// For the message of a run that has gone wrong.
  std::string where_it_went_wrong();
  /// Called before each step: starts and ends the timing of --profile.
  void profile_steps();
  /// Prints what was timed, if anything is being timed, and writes --trace.
  void finish_profile();
  /// Writes --report-html.
  void report_job(const nn::HtmlReportOptions& times);
  /// Writes --report-html unless it has been, with the times of --profile; warns if nothing was timed.
  void finish_reports();
  void read_ahead();
  /// Runs all epochs that are left; false if they were cut short.
  bool train_epochs();
  /// Runs the rest of the present epoch; false if it was cut short.
  bool run_epoch();
  /// The next batch. If reading it fails, what was trained so far is saved before the error goes on.
  std::optional<nn::data::Batch> next_batch();
  /// Takes a batch, and counts it.
  void take_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step, bool ends_step);
  /// The mean loss so far. Waits for the device, and throws if training has gone wrong since the last call.
  double checked_loss();
  void open_log();
  void begin_step_log();
  void save_best(const nn::State& weights);
  /// If the last time failed.
  void save_best_again();
  void log_step(double learning_rate);

  /// What lives on the device beside a step, as it was measured.
  struct Surroundings {
    double loader_per_image = 0.0, tests_per_image = 0.0;
    TestSample sample;

    /// Of one rank, in a run of so many images of all `ranks` in a batch.
    size_t loader(int64_t batch, int64_t ranks) const;
    size_t tests(int64_t batch) const;
  };
  struct Pace {
    double step_seconds = 0.0, step_joules = 0.0;  // joules of all ranks; 0: nobody tells
    double wait_share = 0.0, test_seconds = 0.0;
  };
  /// Bytes that this rank may take of its device, or of the one that --plan is for.
  size_t memory_room() const;
  bool is_for_gpu() const { return device_.is_cuda() || common_.plans_for_gpu(); }
  Surroundings measure_surroundings(const TestSample& sample);
  nn::StepForecast forecast(int64_t batch, nn::ForecastOptions options);
  /// All that lives on the device at most, but for what `room` leaves out.
  size_t peak_with(const nn::StepForecast& step, int64_t batch, const Surroundings& around) const;
  /// 0 if none fits.
  int64_t largest_batch(const Surroundings& around);
  void tell_memory(const Surroundings& around);
  void tell_limits(const nn::StepForecast& step);
  Pace measure_pace(const TestSample& sample);

 protected:
  const TrainerOptions& common_;
  const Communicator& ranks_;
  Device device_;
  TrainingPlan plan_;
  nn::ModelMetadata metadata_;
  nn::data::DataLoader train_loader_;
  nn::GradScaler scaler_;
  nn::Schedule schedule_;
  std::optional<nn::ReduceOnPlateau> plateau_;  // of --schedule plateau, in units of --lr
  std::unique_ptr<nn::Optimizer> optimizer_;    // the trainer makes it
  std::unique_ptr<nn::EMA> ema_;                // null: no averages
  std::unique_ptr<nn::TrainJob> job_;           // null: steps are eager
  std::vector<Tensor> outputs_;
  std::unique_ptr<nn::CheckpointFolder> checkpoints_;  // null: none are saved, or by another rank
  int64_t epoch_ = 0;
  int64_t step_ = 0;     // of the whole run
  int64_t trained_ = 0;  // steps that were taken: more than step_ where --change-recipe began an epoch anew
  BestTest best_;
  int64_t tested_epoch_ = 0;  // in which the last test was, of 1, 2, ...
  EpochStats stats_;
  StepTimer timer_;
  std::unique_ptr<RunFolder> run_folder_;  // null: without a log
  std::unique_ptr<GpuMeter> meter_;        // the same
  std::optional<StepLog> step_log_;        // of the present epoch
  std::optional<ProgressBar> bar_;         // of the present epoch
  TimingNotice timing_notice_;
  std::chrono::steady_clock::time_point started_;  // the first step of this process
  // Of this process, all epochs together.
  struct {
    int64_t steps = 0, images = 0;
    double prepare_seconds = 0.0;  // before the first step, not part of `seconds`
    double seconds = 0.0, compute_seconds = 0.0, wait_seconds = 0.0;
    size_t peak_bytes = 0;
  } total_;
  int stopped_by_ = 0;

 private:
  std::string save_failure_, best_failure_;
  nn::State best_weights_;  // see best_weights(); else those that best.safetensors still lacks
  std::pair<int64_t, int64_t> saved_ = {-1, -1};  // epoch and step of the last checkpoint
  bool save_asked_ = false;                       // by SIGUSR1, and not done yet
  bool in_series_ = false;                        // some batches of a step are done, others not
  std::deque<nn::data::Batch> ahead_;             // that are read, and not trained on
  bool epoch_is_read_ = false;
  std::optional<nn::AnyModule> whole_, averaged_;  // what is tested, and its averages in a model of their own
  nn::JobFunction function_;
  std::vector<nn::Parameter> apart_;
  struct {
    std::unique_ptr<OpProfile> calls;  // while steps are timed
    double seconds_before = 0.0;       // total_.compute_seconds when the steps before it began
    double step_us = 0.0;              // what one of these steps took
    bool reported = false;             // --report-html is written
  } profile_;
};

/// Images per second.
double rate(int64_t images, double seconds);

/// A shape of images in a layout.
Shape image_shape(Layout layout, int64_t n, int64_t height, int64_t width, int64_t channels);

}  // namespace sinter::examples
