// One training run: model, data, optimiser and schedule, and how they are saved and restored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/profile/profile.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/ema.h>
#include <sinter/nn/schedule/plateau.h>

#include "class_loss.h"
#include "mistakes.h"
#include "model.h"
#include "options.h"
#include "setup.h"
#include "trainer/trainer_base.h"

namespace train_resnet {

/// How good the model is on the test images.
struct TestResult {
  sinter::nn::ConfusionMatrix confusion;
  std::optional<double>
      top5;           // share of images whose class is among the five likeliest; for over ten classes
  double loss = 0.0;  // mean, the same loss as in training, but without weights of classes
  std::vector<Mistake> mistakes;  // the worst of this rank's part, if they were asked for
};

class Trainer final : public sinter::examples::TrainerBase {
 public:
  /// `metadata` are the weights', which begin as those of `weights`, or fresh. `options` must outlive the
  /// trainer.
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

  /// As TrainerBase does; then warns if the run ended before the steps that --profile asks for.
  bool train();

  /// Who decodes the JPEGs to train on.
  std::string decoder() const { return train_loader_.decoder_name(); }

  /// Tests the model on all test images; nothing if a rank is asked to stop before the end.
  std::optional<TestResult> evaluate(bool keeps_mistakes = false);
  /// Puts the mistakes of a test as pictures into the run's log, if there is one.
  void show_mistakes(const TestResult& test);
  /// The classes that do worst, as a line; empty if all do well.
  std::string weakest(const TestResult& test) const;

  const sinter::nn::ResNet& model() const { return model_; }
  /// The weights that evaluate() tests: the averages, if there are any.
  sinter::nn::State tested_weights() const {
    return ema_ != nullptr ? ema_->averaged_state() : model_.state();
  }

  /// What this process has trained, and `test` if the run is complete, as JSON.
  std::string report(const TestResult* test) const;
  /// The best test of the run and its epoch, as a line; empty if none was made.
  std::string best_so_far() const;

 private:
  const sinter::nn::ModuleBase& module() const override { return model_; }
  sinter::nn::Optimizer& optimizer() override { return *optimizer_; }
  Recipe recipe() const override { return recipe_of(options_); }
  void prepare() override;
  void begin_epoch() override;
  /// As --freeze-trunk says of the present epoch.
  void freeze();
  void before_step() override { profile_steps(); }
  sinter::Tensor train_batch(const sinter::nn::data::Batch& batch, double learning_rate, bool begins_step,
                             bool ends_step) override;
  bool finish_epoch(bool whole) override;
  bool tests_each_epoch() const override { return true; }
  bool ends_early() const override;
  std::string where_it_went_wrong() override;
  void clear_stats() override;
  LogPlan log_plan() const override;
  sinter::nn::CheckpointData checkpoint() override;

  /// On a copy of the model.
  void choose_algorithms(const sinter::Shape& images) const;
  /// Called before each step: starts and ends the timing of --profile.
  void profile_steps();
  /// Prints what was timed, if anything is being timed, and writes --trace.
  void finish_profile();
  /// Writes --report-html.
  void report_job(const sinter::nn::HtmlReportOptions& times);
  void report_epoch(const TestResult& test) const;
  void log_epoch(const TestResult& test) const;
  /// Saves the weights as best.safetensors if no test before was better.
  void keep_best(const TestResult& test);

  /// Model and averages of a checkpoint.
  void restore_weights(const sinter::nn::LoadedCheckpoint& checkpoint);
  /// Gives false if the state does not fit, which only --change-recipe allows.
  bool restore_optimizer(const sinter::nn::CheckpointData& data);

  /// The sums of all ranks.
  std::vector<int64_t> sum_over_ranks(const std::vector<int64_t>& own) const;
  /// What the ranks' parts of the test come to.
  void join_test(TestResult& result, std::vector<int64_t>& correct) const;

  const Options& options_;
  sinter::nn::data::DataLoader test_loader_;
  sinter::nn::ResNet model_;
  std::unique_ptr<sinter::nn::Optimizer> optimizer_;
  ClassLoss loss_;
  std::optional<sinter::nn::ReduceOnPlateau> plateau_;  // of --schedule plateau, in units of --lr
  std::unique_ptr<sinter::nn::EMA> ema_;                // null: no averages
  std::optional<sinter::nn::ResNet> averaged_;          // what they are tested in
  std::unique_ptr<sinter::nn::TrainJob> job_;           // null: steps are eager
  sinter::nn::TopKAccuracy train_correct_{1};           // of the epoch, as stats_
  int64_t epoch_correct_ = 0;                           // of the epoch's training images, over all ranks
  int64_t test_images_;                                 // of all ranks
  std::string test_fingerprint_;
  struct {
    std::unique_ptr<sinter::OpProfile> calls;  // while steps are timed
    double seconds_before = 0.0;               // total_.compute_seconds when the steps before it began
    double step_us = 0.0;                      // what one of these steps took
    bool reported = false;                     // --report-html is written
  } profile_;
};

}  // namespace train_resnet
