#include "curves/run_curves.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>
#include <sinter/nn/log/run_log.h>

namespace sinter::examples {
namespace {

constexpr const char* kLearningRate = "train/learning_rate";

/// The chart of a tag, and the curve in it.
struct Place {
  std::string chart, curve;
  bool percent = false;
};

std::optional<Place> place_of(const std::string& tag) {
  if (tag == kLearningRate) return Place{"Learning rate", "train"};
  const size_t slash = tag.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string of = tag.substr(0, slash), what = tag.substr(slash + 1);
  const bool is_train = of == "train";
  if (what == "loss" || (is_train && what == "epoch_loss")) return Place{"Loss", of};
  if (what != "accuracy" && !(is_train && what == "epoch_accuracy")) return std::nullopt;
  if (of.starts_with("verify/")) return Place{"Verification accuracy", of.substr(7), true};
  return Place{"Accuracy", of, true};
}

/// Training losses are logged twice: of each epoch, and in more detail. One of both is drawn.
bool is_other_loss(const RunCurves& run, const std::string& tag, Over over) {
  const char* const preferred = over == Over::kEpochs ? "train/epoch_loss" : "train/loss";
  const char* const other = over == Over::kEpochs ? "train/loss" : "train/epoch_loss";
  return tag == other && run.tags.contains(preferred);
}

/// How many epochs so many steps are, between those that were logged, and beyond them as in the last; NaN
/// before the first was.
double epochs_at(const RunCurves& run, double step) {
  if (run.epochs.empty()) return std::nan("");
  const auto right = std::ranges::lower_bound(run.epochs, step, {}, &std::pair<double, double>::first);
  const auto to = right == run.epochs.end() ? right - 1 : right;
  const auto [steps, epochs] = to == run.epochs.begin() ? std::pair(0.0, 0.0) : *(to - 1);
  return to->first <= steps ? to->second
                            : epochs + (to->second - epochs) * (step - steps) / (to->first - steps);
}

struct Unit {
  const char* name;
  double seconds;
};

Unit unit_of(double seconds) {
  if (seconds < 180) return {"seconds", 1};
  return seconds < 3 * 3600 ? Unit{"minutes", 60} : Unit{"hours", 3600};
}

std::vector<double> read_starts(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<double> starts;
  try {
    const nlohmann::ordered_json run = parse_json(std::string{std::istreambuf_iterator<char>(file), {}});
    if (!run.is_object() || !run.contains("starts")) return {};
    for (const auto& start : run["starts"]) {
      std::tm parts{};
      if (start.is_object() && start.contains("time") && start["time"].is_string() &&
          ::strptime(start["time"].get<std::string>().c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) != nullptr)
        starts.push_back(static_cast<double>(::timegm(&parts)));
    }
  } catch (const IoError&) {  // what a run is made of can be drawn without it
  }
  return starts;
}

}  // namespace

void RunCurves::add(const nn::ScalarRecord& record) {
  double begin = time.value_or(starts.empty() ? record.time : starts.front());
  for (const double start : starts) {
    if (start <= record.time) begin = std::max(begin, start);  // what lies before it is a pause
  }
  if (record.time > begin) seconds += record.time - begin;
  time = record.time;
  for (const auto& [tag, value] : record.values) {
    if (tag == "epoch") epochs.emplace_back(static_cast<double>(record.step), value);
    if (place_of(tag)) tags[tag].push_back({static_cast<double>(record.step), seconds, value});
  }
}

RunCurves read_curves(const std::filesystem::path& folder) {
  RunCurves run;
  run.starts = read_starts(folder / "run.json");
  for (const nn::ScalarRecord& record : nn::read_scalars(folder / nn::RunLog::kJsonName)) run.add(record);
  return run;
}

std::vector<nn::Chart> charts_of(std::span<const RunCurves> runs, Over over) {
  const bool several = runs.size() > 1;
  double longest = 0;
  for (const RunCurves& run : runs) longest = std::max(longest, run.seconds);
  const Unit unit = unit_of(longest);
  std::string label = over == Over::kEpochs ? "epoch" : over == Over::kSteps ? "step" : unit.name;
  if (!several && over != Over::kSeconds && longest > 0)
    label += fmt::format(" ({:.3g} {} in all)", longest / unit.seconds, unit.name);
  std::map<std::string, nn::Chart> charts;  // Accuracy, Learning rate, Loss, Verification accuracy
  for (const RunCurves& run : runs) {
    for (const auto& [tag, points] : run.tags) {
      if (is_other_loss(run, tag, over)) continue;
      const Place place = *place_of(tag);
      const bool is_rate = tag == kLearningRate, is_verified = place.chart.starts_with("Verif");
      const bool dashed = several && !is_rate && place.curve == "train";
      std::string title = place.chart;
      if (several && !is_rate) title += is_verified ? ": " + place.curve : " (training dashed)";
      nn::Chart& chart = charts[title];
      chart.title = title;
      chart.x_label = label;
      chart.percent = place.percent;
      nn::Curve curve{.name = several ? run.name : place.curve, .points = {}, .dashed = dashed};
      for (const RunCurves::Point& point : points) {
        const double x = over == Over::kEpochs  ? epochs_at(run, point.step)
                         : over == Over::kSteps ? point.step
                                                : point.seconds / unit.seconds;
        curve.points.emplace_back(x, point.value);
      }
      chart.curves.push_back(std::move(curve));
    }
  }
  std::vector<nn::Chart> ordered;
  for (auto& [title, chart] : charts) {
    // Training comes first, so that its colour is the same in every picture.
    std::ranges::stable_partition(chart.curves, [](const auto& curve) { return curve.name == "train"; });
    ordered.push_back(std::move(chart));
  }
  const auto place = [](const nn::Chart& chart) {
    return chart.title.starts_with("Loss") ? 0 : chart.title.starts_with("Learning") ? 2 : 1;
  };
  std::ranges::stable_sort(ordered, {}, place);
  return ordered;
}

}  // namespace sinter::examples
