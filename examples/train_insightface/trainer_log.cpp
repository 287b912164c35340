// What a run tells of itself: lines on the screen, the log of its folder, the JSON report.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include <sinter/core/runtime/backend.h>

#include "common/console.h"
#include "common/text.h"
#include "run/output_files.h"
#include "trainer.h"

namespace train_insightface {

using namespace sinter;
using examples::Scalars;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kBetweenLines = std::chrono::seconds(10);

}  // namespace

Trainer::LogPlan Trainer::log_plan() const {
  ordered_json sets = ordered_json::array();
  for (const FacePairs& faces : pairs_) sets.push_back({{"name", faces.name}, {"pairs", faces.pairs.size()}});
  return {.description = {{"program", "train_insightface of Sinter " SINTER_VERSION},
                          {"identities", centres_.classes()},
                          {"identities_a_step", centres_.sampled_classes()},
                          {"verify", sets},
                          {"parameters", model_.backbone.parameter_count()}},
          .over = examples::Over::kSteps};
}

double Trainer::hours_left() const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
  return elapsed / 3600.0 * static_cast<double>(total_steps() - step_) /
         static_cast<double>(std::max<int64_t>(total_.steps, 1));
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
    const std::string line = fmt::format("step {}/{}  epoch {}/{}  loss {:.4f}", step, total_steps(),
                                         epoch_ + 1, *options_.epochs, value("train/loss"));
    std::vector<std::string> details = {fmt::format("{:.0f} samples/s", value("train/images_per_second")),
                                        fmt::format("{:.2f} hours left", hours_left()),
                                        fmt::format("lr {:.4g}", value("train/learning_rate"))};
    if (scaler_.options().enabled) details.push_back(fmt::format("scale {}", scaler_.scale()));
    examples::say("{}\n", examples::fit(line, details, examples::text_columns(stdout)));
  }
  TrainerBase::tell_steps(step, std::move(values));
}

void Trainer::report_epoch() const {
  const double idle = std::clamp(1.0 - stats_.compute_seconds / std::max(stats_.seconds, 1e-9), 0.0, 1.0);
  const size_t peak = backend_of(device_).memory_pool(device_.index).stats().peak_live_bytes;
  const int64_t skipped = scaler_.skipped() - stats_.skipped_before;
  const double loss = stats_.loss.read().mean, rate = schedule_(std::max<int64_t>(step_ - 1, 0));
  const double samples_s = examples::rate(stats_.images, stats_.seconds);
  const std::string line =
      fmt::format("epoch {:>3}/{}  step {}  loss {:.4f}", epoch_ + 1, *options_.epochs, step_, loss);
  std::vector<std::string> details = {fmt::format("{:.0f} samples/s", samples_s),
                                      fmt::format("{:.2f} hours left", hours_left())};
  if (skipped > 0) details.push_back(examples::counted(skipped, "step") + " skipped");
  details.push_back(fmt::format("lr {:.4g}", rate));
  if (scaler_.options().enabled) details.push_back(fmt::format("scale {}", scaler_.scale()));
  details.push_back(fmt::format("{:.0f} % idle", 100.0 * idle));
  details.push_back(fmt::format("peak {:.2f} GB", static_cast<double>(peak) / 1e9));
  examples::say("{}\n", examples::fit(line, details, examples::text_columns(stdout)));
  double accuracy = 0.0;
  for (const VerifiedSet& set : verified_)
    accuracy += set.folds.accuracy / static_cast<double>(verified_.size());
  log_line(
      "epoch,steps,learning_rate,loss,accuracy,samples_s,compute_samples_s,seconds,peak_bytes,skipped_steps",
      fmt::format("{},{},{:.6g},{:.6g},{},{:.6g},{:.6g},{:.6g},{},{}", epoch_ + 1, step_, rate, loss,
                  verified_.empty() ? "" : fmt::format("{:.6g}", accuracy), samples_s,
                  examples::rate(stats_.images, stats_.compute_seconds), stats_.seconds, peak, skipped));
}

std::string Trainer::report(bool complete) const {
  ordered_json report = {{"backbone", options_.backbone},
                         {"dims", options_.dims},
                         {"identities", centres_.classes()},
                         {"identities_a_step", centres_.sampled_classes()},
                         {"margin", options_.margin},
                         {"optimizer", options_.optimizer},
                         {"batch", options_.batch_of(plan_.images->size())},
                         {"decoder", train_loader_.decoder_name()},
                         {"hardware_decoded", train_loader_.hardware_decoded()},
                         {"samples_s", nullptr},
                         {"verify", to_json(verified_)}};
  if (total_.images > 0) report["samples_s"] = examples::rate(total_.images, total_.seconds);
  report.update(report_common(complete));
  return examples::to_json_text(report);
}

}  // namespace train_insightface
