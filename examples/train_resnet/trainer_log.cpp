// What a run writes into its folder as it goes.
#include <fmt/core.h>

#include "trainer.h"

namespace train_resnet {

using namespace sinter;

Trainer::LogPlan Trainer::log_plan() const {
  const nn::data::Dataset& train = train_loader_.dataset();
  return {.description = {{"program", "train_resnet of Sinter " SINTER_VERSION},
                          {"test_images", (final_ ? *final_ : judge_images_).all->size()},
                          {"classes", train.num_classes()},
                          {"parameters", model_.parameter_count()},
                          {"decoder", train_loader_.decoder_name()},
                          {"test_fingerprint", test_fingerprint_}},
          .over = examples::Over::kEpochs};
}

void Trainer::log_epoch(const TestResult& test) const {
  if (run_folder_ == nullptr) return;
  const double images = static_cast<double>(stats_.images);
  examples::Scalars values = epoch_scalars();
  values.emplace_back("train/epoch_accuracy", static_cast<double>(epoch_correct_) / images);
  values.emplace_back(fmt::format("{}/loss", judge()), test.loss);
  values.emplace_back(fmt::format("{}/accuracy", judge()), test.confusion.accuracy());
  if (test.top5) values.emplace_back(fmt::format("{}/top5_accuracy", judge()), *test.top5);
  if (ranks_.size() > 1) {
    values.emplace_back("train/epoch_images_per_second_per_process",
                        examples::rate(stats_.images, stats_.seconds) / ranks_.size());
  }
  run_folder_->add(trained_, std::move(values));
  run_folder_->draw();
}

}  // namespace train_resnet
