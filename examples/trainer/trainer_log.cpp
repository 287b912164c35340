// What a run writes into its folder as it goes.
#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include <sinter/core/json/json.h>
#include <sinter/core/runtime/backend.h>

#include "common/console.h"
#include "recipe/recipe_file.h"
#include "run/output_files.h"
#include "trainer/trainer_base.h"

namespace sinter::examples {

using nlohmann::ordered_json;

namespace {

// Between records of training losses, unless --log-every says otherwise.
constexpr int64_t kRecordsPerEpoch = 20;
constexpr int64_t kMostSteps = 50;

}  // namespace

void TrainerBase::open_log() {
  // A run without a step to take leaves its folder as it is.
  if (ranks_.rank() != 0 || common_.log_folder().empty() || epochs_left() == 0 || should_stop()) return;
  std::optional<LogPlace> place;
  if (common_.resume) {
    const bool is_done = train_loader_.epoch() > epoch_ ||
                         train_loader_.state().batch >= steps_per_epoch() * common_.accumulate;
    place = {.steps = trained_, .test_follows = tests_each_epoch() && stats_.images > 0 && is_done};
  }
  LogPlan plan = log_plan();
  ordered_json recipe_texts = ordered_json::object();
  for (const auto& [option, value] : recipe()) recipe_texts[option.substr(2)] = value;
  ordered_json description = {{"run", common_.run},
                              {"data", plan_.name},
                              {"data_kind", plan_.kind},
                              {"train_images", plan_.images->size()},
                              {"processes", ranks_.size()},
                              {"launcher", ranks_.environment().launcher},
                              {"device", fmt::format("{}", device_)},
                              {"device_name", backend_of(device_).describe(device_.index)},
                              {"steps_per_epoch", steps_per_epoch()},
                              {"layout", to_string(*common_.layout)},
                              {"steps_are", common_.job ? "a job" : "eager"},
                              {"workers", *common_.workers},
                              {"load_weights", common_.load_weights},
                              {"checkpoints", absolute_path(common_.checkpoints)},
                              {"model_metadata", parse_json(nn::to_json(metadata_))},
                              {"recipe", std::move(recipe_texts)}};
  description.update(plan.description);
  run_folder_ = std::make_unique<RunFolder>(RunPlan{.folder = common_.log_folder(),
                                                    .description = description,
                                                    .words = common_.words,
                                                    .over = plan.over},
                                            place);
  meter_ = std::make_unique<GpuMeter>(device_);
  run_folder_->hyper_parameters(recipe());
  write_recipe_file((std::filesystem::path(common_.log_folder()) / kRecipeName).string(), recipe());
}

void TrainerBase::begin_step_log() {
  if (!logs_steps()) return;
  const int64_t usual = std::clamp<int64_t>(steps_per_epoch() / kRecordsPerEpoch, 1, kMostSteps);
  const auto sink = [this](int64_t step, Scalars values) {
    if (meter_ != nullptr) {
      const Scalars readings = meter_->readings();
      values.insert(values.end(), readings.begin(), readings.end());
    }
    tell_steps(step, std::move(values));
  };
  step_log_.emplace(sink, common_.log_every > 0 ? common_.log_every : usual,
                    StepSums{stats_.images, stats_.seconds, stats_.wait_seconds}, stats_.loss);
}

void TrainerBase::log_step(double learning_rate) {
  if (!step_log_) return;
  step_log_->after_step(trained_, learning_rate, {stats_.images, stats_.seconds, stats_.wait_seconds},
                        stats_.loss);
}

void TrainerBase::tell_steps(int64_t step, Scalars values) {
  if (run_folder_ != nullptr) run_folder_->add(step, std::move(values));
}

void TrainerBase::log_line(const char* header, const std::string& row) const {
  if (common_.log.empty()) return;
  try {
    append_line(common_.log, header, row);
  } catch (const IoError& error) {
    complain("warning: --log {}; training goes on", error.what());
  }
}

Scalars TrainerBase::epoch_scalars() const {
  const double seconds = std::max(stats_.seconds, 1e-9);
  const PoolStats memory = backend_of(device_).memory_pool(device_.index).stats();
  Scalars values = {{"epoch", static_cast<double>(epoch_ + 1)},
                    {"train/epoch_loss", stats_.loss.read().mean},
                    {"train/epoch_images_per_second", static_cast<double>(stats_.images) / seconds},
                    {"train/epoch_data_wait_share", std::clamp(stats_.wait_seconds / seconds, 0.0, 1.0)},
                    {"memory/peak_bytes", static_cast<double>(memory.peak_live_bytes)}};
  if (scaler_.options().enabled) {
    values.emplace_back("gradient_scale/scale", scaler_.scale());
    values.emplace_back("gradient_scale/skipped_steps",
                        static_cast<double>(scaler_.skipped() - stats_.skipped_before));
  }
  return values;
}

ordered_json TrainerBase::report_common(bool complete) const {
  ordered_json report = {{"precision", *common_.precision},
                         {"layout", to_string(*common_.layout)},
                         {"device", fmt::format("{}", device_)},
                         {"processes", ranks_.size()},
                         {"epochs", *common_.epochs},
                         {"seed", common_.seed},
                         {"complete", complete},
                         {"damaged_images", plan_.damaged->count()},
                         {"steps", total_.steps},
                         {"skipped_steps", scaler_.skipped()},
                         {"seconds", total_.seconds},
                         {"compute_seconds", total_.compute_seconds},
                         {"prepare_seconds", total_.prepare_seconds},
                         {"wait_seconds", total_.wait_seconds},
                         {"peak_gib", static_cast<double>(total_.peak_bytes) / 0x1p30},
                         {"best_accuracy", nullptr},
                         {"best_step", nullptr}};
  if (best_.accuracy >= 0) {
    report["best_accuracy"] = best_.accuracy;
    report["best_step"] = best_.step;
  }
  return report;
}

}  // namespace sinter::examples
