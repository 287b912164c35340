// One training run: model, data, optimiser and schedule, how they are verified, saved and restored.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data.h"
#include "model.h"
#include "options.h"
#include "trainer/trainer_base.h"
#include "verifier.h"

namespace train_insightface {

/// The best test is that with the best mean accuracy over all sets of pairs.
class Trainer final : public sinter::examples::TrainerBase {
 public:
  /// Without `start`, the backbone begins with fresh weights. `options` must outlive the trainer.
  /// Of several ranks, each has the backbone and its part of the centres.
  Trainer(const Options& options, sinter::Device device, const TrainingData& data,
          std::vector<FacePairs> pairs, const sinter::nn::ModelMetadata& metadata,
          const std::optional<sinter::nn::State>& start, const sinter::Communicator& ranks);

  /// Goes on from a checkpoint, whose options the run has but for --epochs, unless --change-recipe is given:
  /// an epoch of other batches, or unless the data are the same, is then begun anew, and the output says so.
  /// Throws Error if the checkpoint is of another run.
  void restore(const sinter::nn::LoadedCheckpoint& checkpoint, bool same_data);

  /// A backbone of its own with tested_weights().
  sinter::nn::AnyModule tested_backbone() const;
  const sinter::nn::PartialFC& centres() const { return centres_; }
  int64_t parameter_count() const { return model_.backbone.parameter_count(); }

  /// What this process has trained, as JSON.
  std::string report(bool complete) const;

 private:
  const sinter::nn::ModuleBase& module() const override { return model_; }
  Recipe recipe() const override { return recipe_of(options_); }
  void prepare() override;
  std::vector<sinter::TensorSpec> batch_specs(int64_t batch) const override;
  void try_test() override { compare_here(); }
  int64_t tests_of_run() const override;
  void before_step() override;
  bool reads_ahead() const override { return true; }
  sinter::Tensor train_batch(const sinter::nn::data::Batch& batch, double learning_rate, bool begins_step,
                             bool ends_step) override;
  /// Whether --verify-every asks for it at this step, and it was not done yet.
  bool test_due() const override;
  /// Verifies all sets of pairs; if it was to stop meanwhile, nothing is kept.
  bool test() override;
  bool finish_epoch(bool whole) override;
  void rehearse(const sinter::nn::data::Batch& batch) override;
  LogPlan log_plan() const override;
  bool logs_steps() const override { return true; }
  /// Into the log, and now and then on the screen.
  void tell_steps(int64_t step, sinter::examples::Scalars values) override;
  sinter::nn::CheckpointData checkpoint() override;

  double hours_left() const;
  void report_epoch() const;
  /// Compares this rank's part of all sets of pairs; none if it was to stop meanwhile.
  std::optional<std::vector<ComparedPairs>> compare_here() const;
  /// As restore_optimizer().
  bool restore_centres(const sinter::nn::CheckpointData& data);

  const Options& options_;
  std::vector<FacePairs> pairs_;
  sinter::nn::PartialFC centres_;
  FaceModel model_;
  std::deque<sinter::Tensor> rows_;    // labels of the batches that are left of a step, as the head counts
  int64_t verified_step_ = -1;         // of trained_
  std::vector<VerifiedSet> verified_;  // the last results
  std::chrono::steady_clock::time_point told_;  // the last line
};

}  // namespace train_insightface
