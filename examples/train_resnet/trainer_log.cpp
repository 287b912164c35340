// What a run writes into its folder as it goes.
#include <algorithm>

#include <fmt/core.h>

#include <sinter/core/json/json.h>
#include <sinter/core/runtime/backend.h>

#include "recipe/recipe_file.h"
#include "run/output_files.h"
#include "trainer.h"

namespace train_resnet {

using namespace sinter;

namespace {

// Between records of training losses, unless --log-every says otherwise.
constexpr int64_t kRecordsPerEpoch = 20;
constexpr int64_t kMostSteps = 50;

}  // namespace

void Trainer::open_log() {
  // A run without a step to take leaves its folder as it is.
  if (ranks_.rank() != 0 || options_.log_folder().empty() || epochs_left() == 0 || should_stop()) return;
  std::optional<examples::LogPlace> place;
  if (options_.resume) {
    // A checkpoint may have been saved behind the last step of an epoch, but before its test.
    const int64_t batches = steps_per_epoch() * options_.accumulate;
    place = {.steps = trained_,
             .test_follows = stats_.images > 0 &&
                             (train_loader_.epoch() > epoch_ || train_loader_.state().batch >= batches)};
  }
  run_folder_ = std::make_unique<RunFolder>(
      examples::RunPlan{
          .folder = options_.log_folder(),
          .description = describe_run(),
          .words = options_.words,
          .x_tag = "epoch",
          .x_label = "epoch",
          .charts = {{"Loss", {{"train", "train/epoch_loss"}, {"test", "test/loss"}}},
                     {"Accuracy", {{"train", "train/epoch_accuracy"}, {"test", "test/accuracy"}}, true}}},
      place);
  examples::write_recipe_file((std::filesystem::path(options_.log_folder()) / examples::kRecipeName).string(),
                              recipe_of(options_));
}

nlohmann::ordered_json Trainer::describe_run() const {
  nlohmann::ordered_json recipe = nlohmann::ordered_json::object();
  for (const auto& [option, value] : recipe_of(options_)) recipe[option.substr(2)] = value;
  const nn::data::Dataset& train = train_loader_.dataset();
  return {{"run", options_.run},
          {"program", "train_resnet of Sinter " SINTER_VERSION},
          {"data", data_name_},
          {"data_kind", data_kind_},
          {"train_images", train.size()},
          {"test_images", test_images_},
          {"processes", ranks_.size()},
          {"launcher", ranks_.environment().launcher},
          {"classes", train.num_classes()},
          {"device", fmt::format("{}", device_)},
          {"device_name", backend_of(device_).describe(device_.index)},
          {"parameters", model_.parameter_count()},
          {"steps_per_epoch", steps_per_epoch()},
          {"layout", to_string(*options_.layout)},
          {"steps_are", options_.job ? "a job" : "eager"},
          {"workers", *options_.workers},
          {"decoder", train_loader_.decoder_name()},
          {"load_weights", options_.load_weights},
          {"checkpoints", examples::absolute_path(options_.checkpoints)},
          {"test_fingerprint", test_fingerprint_},
          {"model_metadata", parse_json(nn::to_json(metadata_))},
          {"recipe", recipe}};
}

void Trainer::begin_step_log() {
  if (run_folder_ == nullptr) return;
  const int64_t usual = std::clamp<int64_t>(steps_per_epoch() / kRecordsPerEpoch, 1, kMostSteps);
  const auto sink = [this](int64_t step, examples::Scalars values) {
    run_folder_->add(step, std::move(values));
  };
  step_log_.emplace(sink, options_.log_every > 0 ? options_.log_every : usual,
                    StepSums{stats_.images, stats_.seconds, stats_.wait_seconds}, stats_.loss);
}

void Trainer::log_step(double learning_rate) {
  if (!step_log_) return;
  step_log_->after_step(trained_, learning_rate, {stats_.images, stats_.seconds, stats_.wait_seconds},
                        stats_.loss);
}

void Trainer::log_epoch(const TestResult& test) const {
  if (run_folder_ == nullptr) return;
  const double images = static_cast<double>(stats_.images), seconds = std::max(stats_.seconds, 1e-9);
  std::vector<std::pair<std::string, double>> values = {
      {"epoch", static_cast<double>(epoch_ + 1)},
      {"train/epoch_loss", stats_.loss.read().mean},
      {"train/epoch_accuracy", static_cast<double>(epoch_correct_) / images},
      {"train/epoch_images_per_second", images / seconds},
      {"train/epoch_data_wait_share", std::clamp(stats_.wait_seconds / seconds, 0.0, 1.0)},
      {"test/loss", test.loss},
      {"test/accuracy", test.confusion.accuracy()}};
  if (test.top5) values.emplace_back("test/top5_accuracy", *test.top5);
  if (ranks_.size() > 1)
    values.emplace_back("train/epoch_images_per_second_per_process", images / seconds / ranks_.size());
  const PoolStats memory = backend_of(device_).memory_pool(device_.index).stats();
  values.emplace_back("memory/peak_bytes", static_cast<double>(memory.peak_live_bytes));
  if (scaler_.options().enabled) {
    values.emplace_back("gradient_scale/scale", scaler_.scale());
    values.emplace_back("gradient_scale/skipped_steps",
                        static_cast<double>(scaler_.skipped() - stats_.skipped_before));
  }
  run_folder_->add(trained_, std::move(values));
  run_folder_->draw();
}

}  // namespace train_resnet
