// What a run tells of itself: lines on the screen, the log of its folder, the JSON report.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include <sinter/core/json/json.h>
#include <sinter/core/runtime/backend.h>

#include "common/console.h"
#include "common/text.h"
#include "recipe/recipe_file.h"
#include "run/output_files.h"
#include "trainer.h"

namespace train_insightface {

using namespace sinter;
using examples::Scalars;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

namespace {

// Between records of training losses, unless --log-every says otherwise.
constexpr int64_t kRecordsPerEpoch = 20;
constexpr int64_t kMostSteps = 50;
constexpr auto kBetweenLines = std::chrono::seconds(10);

double rate(int64_t images, double seconds) {
  return static_cast<double>(images) / std::max(seconds, 1e-9);
}

}  // namespace

void Trainer::open_log() {
  // A run without a step to take leaves its folder as it is.
  if (ranks_.rank() != 0 || options_.log_folder().empty() || epochs_left() == 0 || should_stop()) return;
  std::optional<examples::LogPlace> place;
  if (options_.resume) place = {.steps = trained_};
  ordered_json recipe = ordered_json::object();
  for (const auto& [option, value] : recipe_of(options_)) recipe[option.substr(2)] = value;
  ordered_json sets = ordered_json::array();
  examples::ChartPlan accuracy{.title = "Verification accuracy", .curves = {}, .percent = true};
  for (const FacePairs& faces : pairs_) {
    sets.push_back({{"name", faces.name}, {"pairs", faces.pairs.size()}});
    accuracy.curves.emplace_back(faces.name, "verify/" + faces.name + "/accuracy");
  }
  const ordered_json description = {{"run", options_.run},
                                    {"program", "train_insightface of Sinter " SINTER_VERSION},
                                    {"data", data_.name},
                                    {"data_kind", data_.kind},
                                    {"train_images", data_.faces->size()},
                                    {"processes", ranks_.size()},
                                    {"launcher", ranks_.environment().launcher},
                                    {"identities", centres_.classes()},
                                    {"identities_a_step", centres_.sampled_classes()},
                                    {"verify", sets},
                                    {"device", fmt::format("{}", device_)},
                                    {"device_name", backend_of(device_).describe(device_.index)},
                                    {"parameters", model_.backbone.parameter_count()},
                                    {"steps_per_epoch", train_loader_.batches_per_epoch()},
                                    {"layout", to_string(*options_.layout)},
                                    {"steps_are", options_.job ? "a job" : "eager"},
                                    {"workers", *options_.workers},
                                    {"load_weights", options_.load_weights},
                                    {"checkpoints", examples::absolute_path(options_.checkpoints)},
                                    {"model_metadata", parse_json(nn::to_json(metadata_))},
                                    {"recipe", recipe}};
  std::vector<examples::ChartPlan> charts = {{"Loss", {{"train", "train/loss"}}}};
  if (!pairs_.empty()) charts.push_back(std::move(accuracy));
  run_folder_ = std::make_unique<examples::RunFolder>(examples::RunPlan{.folder = options_.log_folder(),
                                                                        .description = description,
                                                                        .words = options_.words,
                                                                        .x_tag = "",
                                                                        .x_label = "step",
                                                                        .charts = std::move(charts)},
                                                      place);
  examples::write_recipe_file((std::filesystem::path(options_.log_folder()) / examples::kRecipeName).string(),
                              recipe_of(options_));
}

void Trainer::begin_step_log() {
  const int64_t usual =
      std::clamp<int64_t>(train_loader_.batches_per_epoch() / kRecordsPerEpoch, 1, kMostSteps);
  const auto sink = [this](int64_t step, Scalars values) { tell_steps(step, std::move(values)); };
  step_log_.emplace(sink, options_.log_every > 0 ? options_.log_every : usual,
                    examples::StepSums{stats_.images, stats_.seconds, stats_.wait_seconds}, stats_.loss);
}

void Trainer::log_step(double learning_rate) {
  step_log_->after_step(trained_, learning_rate, {stats_.images, stats_.seconds, stats_.wait_seconds},
                        stats_.loss);
}

void Trainer::tell_steps(int64_t step, Scalars values) {
  const auto now = Clock::now();
  if (now - told_ >= kBetweenLines && bar_) {
    told_ = now;
    bar_->finish();
    const auto value = [&](const char* tag) {
      const auto found = std::ranges::find(values, tag, &Scalars::value_type::first);
      return found == values.end() ? std::nan("") : found->second;
    };
    const double elapsed = std::chrono::duration<double>(now - started_).count();
    const double hours = elapsed / 3600.0 * static_cast<double>(total_steps() - step_) /
                         static_cast<double>(std::max<int64_t>(total_.steps, 1));
    const std::string line = fmt::format("step {}/{}  epoch {}/{}  loss {:.4f}", step, total_steps(),
                                         epoch_ + 1, options_.epochs, value("train/loss"));
    std::vector<std::string> details = {fmt::format("{:.0f} samples/s", value("train/images_per_second")),
                                        fmt::format("{:.2f} hours left", hours),
                                        fmt::format("lr {:.4g}", value("train/learning_rate"))};
    if (scaler_.options().enabled) details.push_back(fmt::format("scale {}", scaler_.scale()));
    examples::say("{}\n", examples::fit(line, details, examples::text_columns(stdout)));
  }
  if (run_folder_ != nullptr) run_folder_->add(step, std::move(values));
}

void Trainer::report_epoch() const {
  const double idle = std::clamp(1.0 - stats_.compute_seconds / std::max(stats_.seconds, 1e-9), 0.0, 1.0);
  const size_t peak = backend_of(device_).memory_pool(device_.index).stats().peak_live_bytes;
  const int64_t skipped = scaler_.skipped() - stats_.skipped_before;
  const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
  const double hours = elapsed / 3600.0 * static_cast<double>(total_steps() - step_) /
                       static_cast<double>(std::max<int64_t>(total_.steps, 1));
  const std::string line = fmt::format("epoch {:>3}/{}  step {}  loss {:.4f}", epoch_ + 1, options_.epochs,
                                       step_, stats_.loss.read().mean);
  std::vector<std::string> details = {fmt::format("{:.0f} samples/s", rate(stats_.images, stats_.seconds)),
                                      fmt::format("{:.2f} hours left", hours)};
  if (skipped > 0) details.push_back(fmt::format("{} steps skipped", skipped));
  details.push_back(fmt::format("lr {:.4g}", schedule_(std::max<int64_t>(step_ - 1, 0))));
  if (scaler_.options().enabled) details.push_back(fmt::format("scale {}", scaler_.scale()));
  details.push_back(fmt::format("{:.0f} % idle", 100.0 * idle));
  details.push_back(fmt::format("peak {:.2f} GB", static_cast<double>(peak) / 1e9));
  examples::say("{}\n", examples::fit(line, details, examples::text_columns(stdout)));
}

void Trainer::log_epoch() const {
  if (run_folder_ == nullptr) return;
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
  run_folder_->add(trained_, std::move(values));
  run_folder_->draw();
}

std::string Trainer::report(bool complete) const {
  ordered_json report = {{"backbone", options_.backbone},
                         {"dims", options_.dims},
                         {"precision", *options_.precision},
                         {"layout", to_string(*options_.layout)},
                         {"device", fmt::format("{}", device_)},
                         {"processes", ranks_.size()},
                         {"identities", centres_.classes()},
                         {"identities_a_step", centres_.sampled_classes()},
                         {"margin", options_.margin},
                         {"epochs", options_.epochs},
                         {"batch", options_.batch},
                         {"seed", options_.seed},
                         {"damaged_images", data_.damaged->count()},
                         {"complete", complete},
                         {"steps", total_.steps},
                         {"skipped_steps", scaler_.skipped()},
                         {"seconds", total_.seconds},
                         {"compute_seconds", total_.compute_seconds},
                         {"prepare_seconds", total_.prepare_seconds},
                         {"wait_seconds", total_.wait_seconds},
                         {"samples_s", nullptr},
                         {"peak_gib", static_cast<double>(total_.peak_bytes) / 0x1p30},
                         {"verify", to_json(verified_)},
                         {"best_accuracy", nullptr},
                         {"best_step", nullptr}};
  if (total_.images > 0) report["samples_s"] = rate(total_.images, total_.seconds);
  if (best_.accuracy >= 0) {
    report["best_accuracy"] = best_.accuracy;
    report["best_step"] = best_.step;
  }
  return examples::to_json_text(report);
}

}  // namespace train_insightface
