// One training run: model, data, optimiser and schedule, and how they are saved and restored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/models/resnet.h>

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
  std::vector<Mistake> mistakes;  // the worst of all ranks, if they were asked for
};

/// Images to test on, as one rank has them.
struct Judged {
  Judged(const std::shared_ptr<const sinter::nn::data::Dataset>& images, const sinter::Communicator& ranks,
         const sinter::nn::data::DataLoaderOptions& options)
      : all(images), loader(test_part(images, ranks), options) {}

  std::shared_ptr<const sinter::nn::data::Dataset> all;
  sinter::nn::data::DataLoader loader;  // of this rank's part
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

  /// Tests the model on all images that epochs are judged by; nothing if a rank is asked to stop before the
  /// end.
  std::optional<TestResult> evaluate(bool keeps_mistakes = false);
  /// What the run came to, for its end: where it was judged by other images than those to test on, the best
  /// weights on these; else as evaluate(), with mistakes.
  std::optional<TestResult> final_test();
  /// Puts the mistakes of a test as pictures into the run's log, if there is one.
  void show_mistakes(const TestResult& test);
  /// The classes that do worst, as a line; empty if all do well.
  std::string weakest(const TestResult& test) const;

  /// Whether epochs are judged by other images than those to test on.
  bool is_judged_apart() const { return final_.has_value(); }

  const sinter::nn::ResNet& model() const { return model_; }

  /// What this process has trained, and `test` if the run is complete, as JSON.
  std::string report(const TestResult* test) const;
  /// The best test of the run and its epoch, as a line; empty if none was made.
  std::string best_so_far() const;

 private:
  const sinter::nn::ModuleBase& module() const override { return model_; }
  Recipe recipe() const override { return recipe_of(options_); }
  void prepare() override;
  /// Of the images that the run ends with.
  std::vector<sinter::TensorSpec> batch_specs(int64_t batch) const override;
  std::vector<sinter::TensorSpec> batch_specs(int64_t batch, int64_t size) const;
  void try_test() override { evaluate(); }
  void begin_epoch() override;
  /// Gives the loader and the job the size of the present epoch's images.
  void set_size();
  /// The job, or the libraries' algorithms, for images of this size.
  void prepare_shape();
  /// As --freeze-trunk says of the present epoch.
  void freeze();
  sinter::Tensor train_batch(const sinter::nn::data::Batch& batch, double learning_rate, bool begins_step,
                             bool ends_step) override;
  bool finish_epoch(bool whole) override;
  bool tests_each_epoch() const override { return true; }
  bool keeps_best_weights() const override { return is_judged_apart(); }
  void rehearse(const sinter::nn::data::Batch& batch) override;
  void clear_stats() override;
  LogPlan log_plan() const override;
  sinter::nn::CheckpointData checkpoint() override;

  /// On a copy of the model.
  void choose_algorithms(const sinter::Shape& images) const;
  void report_epoch(const TestResult& test) const;
  void log_epoch(const TestResult& test) const;

  /// No accuracy or loss of the tests up to here counts: they were of other images.
  void forget_tests();
  /// Model and averages of a checkpoint.
  void restore_weights(const sinter::nn::LoadedCheckpoint& checkpoint);

  /// The sums of all ranks.
  std::vector<int64_t> sum_over_ranks(const std::vector<int64_t>& own) const;
  /// What the ranks' parts of the test come to.
  void join_test(const sinter::nn::data::Dataset& own_part, TestResult& result,
                 std::vector<int64_t>& correct) const;
  std::optional<TestResult> test_on(Judged& images, const sinter::nn::AnyModule& model, bool keeps_mistakes);
  /// "val" where epochs are judged by other images than those to test on, else "test".
  const char* judge() const { return final_ ? "val" : "test"; }

  const Options& options_;
  Judged judge_images_;          // by which epochs are judged
  std::optional<Judged> final_;  // to test on at the end; none: those
  sinter::nn::ResNet model_;
  ClassLoss loss_;
  sinter::nn::TopKAccuracy train_correct_{1};  // of the epoch, as stats_
  int64_t size_ = 0;                           // of images to train on; 0: their own
  int64_t epoch_correct_ = 0;                  // of the epoch's training images, over all ranks
  std::string test_fingerprint_;
};

}  // namespace train_resnet
