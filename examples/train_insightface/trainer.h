// One training run: model, data, optimiser and schedule, how they are verified, saved and restored.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/job/train_job.h>

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

  const sinter::nn::AnyModule& backbone() const { return model_.backbone; }
  const sinter::nn::PartialFC& centres() const { return centres_; }
  /// Null: steps are eager.
  const sinter::nn::TrainJob* job() const { return job_.get(); }

  /// What this process has trained, as JSON.
  std::string report(bool complete) const;

 private:
  const sinter::nn::ModuleBase& module() const override { return model_; }
  sinter::nn::Optimizer& optimizer() override { return optimizer_; }
  Recipe recipe() const override { return recipe_of(options_); }
  void prepare() override;
  void before_step() override;
  sinter::Tensor train_batch(const sinter::nn::data::Batch& batch, double learning_rate, bool begins_step,
                             bool ends_step) override;
  /// Whether --verify-every asks for it at this step, and it was not done yet.
  bool test_due() const override;
  /// Verifies all sets of pairs; if it was to stop meanwhile, nothing is kept.
  bool test() override;
  bool finish_epoch(bool whole) override;
  LogPlan log_plan() const override;
  bool logs_steps() const override { return true; }
  /// Into the log, and now and then on the screen.
  void tell_steps(int64_t step, sinter::examples::Scalars values) override;
  sinter::nn::CheckpointData checkpoint() override;

  double hours_left() const;
  void report_epoch() const;
  /// Compares this rank's part of all sets of pairs; none if it was to stop meanwhile.
  std::optional<std::vector<ComparedPairs>> compare_here() const;
  /// The parameters that each rank has for itself.
  std::vector<sinter::nn::Parameter> apart() const;
  void restore_centres(const sinter::nn::CheckpointData& data);

  const Options& options_;
  std::vector<FacePairs> pairs_;
  sinter::nn::PartialFC centres_;
  FaceModel model_;
  sinter::nn::SGD optimizer_;
  std::unique_ptr<sinter::nn::TrainJob> job_;   // null: steps are eager
  int64_t verified_step_ = -1;                  // of trained_
  std::vector<VerifiedSet> verified_;           // the last results
  std::chrono::steady_clock::time_point told_;  // the last line
};

}  // namespace train_insightface
