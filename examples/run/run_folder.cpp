#include "run/run_folder.h"

#include <algorithm>
#include <ctime>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/nn/log/curves.h>
#include <sinter/nn/log/scalars.h>

#include "common/console.h"
#include "run/output_files.h"

namespace sinter::examples {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using nn::RunLog;
using nn::ScalarRecord;

namespace {

constexpr std::uintmax_t kLargestDescription = 1 << 20;  // bytes

/// "2025-01-31T12:00:00Z"
std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// When the run of this folder was begun and gone on with before, as run.json has it.
ordered_json starts_before(const fs::path& path) {
  std::error_code ignored;
  if (fs::file_size(path, ignored) > kLargestDescription || ignored) return ordered_json::array();
  std::ifstream file(path);
  const ordered_json before = ordered_json::parse(file, nullptr, false);
  if (!before.is_object() || !before.contains("starts") || !before["starts"].is_array())
    return ordered_json::array();
  return before["starts"];
}

/// JSON text; file names that are no UTF-8 get a replacement character.
std::string to_text(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

auto find_value(const std::vector<std::pair<std::string, double>>& values, const char* tag) {
  return std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == tag; });
}

/// What was logged after so many steps, but for the values of an epoch.
std::vector<ScalarRecord> step_records(const fs::path& path, int64_t step) {
  if (!fs::exists(path)) return {};
  std::vector<ScalarRecord> records = nn::read_scalars(path);
  std::erase_if(records, [&](const ScalarRecord& record) {
    return record.step != step || find_value(record.values, "epoch") != record.values.end();
  });
  return records;
}

}  // namespace

void RunFolder::check(const char* option, const fs::path& folder, bool resume) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(fmt::format("{} {} {}", option, folder.string(), reason));
  };
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) refuse("is no folder");
  fs::create_directories(folder, error);
  if (error) refuse(fmt::format("cannot be written: {}", error.message()));
  for (const char* name : {RunLog::kJsonName, "run.json", "recipe.json", "curves.svg", "report.json"})
    check_file(option, folder / name);
  try {
    if (!resume && RunLog::is_in(folder)) {
      refuse(
          "holds the log of another run; add --resume (with --checkpoints) to go on with it, or name another "
          "folder");
    }
    if (fs::exists(folder / RunLog::kJsonName)) nn::read_scalars(folder / RunLog::kJsonName);
  } catch (const IoError& failure) {
    refuse(fmt::format("has a log that cannot go on, move it away: {}", failure.what()));
  }
}

RunFolder::RunFolder(const RunPlan& plan, const std::optional<LogPlace>& place)
    : folder_(plan.folder), x_tag_(plan.x_tag), x_label_(plan.x_label), charts_(plan.charts) {
  for (const ChartPlan& chart : charts_) points_.emplace_back(chart.curves.size());
  const fs::path scalars = folder_ / RunLog::kJsonName;
  std::optional<int64_t> resume_at;
  std::vector<ScalarRecord> again;
  if (place) {
    resume_at = place->steps;
    if (place->test_follows) {
      // The epoch's values come again, those of its last step do not.
      again = step_records(scalars, place->steps);
      --*resume_at;
    }
  }
  log_ = std::make_unique<RunLog>(folder_, nn::RunLogOptions{.resume_at = resume_at});
  if (place) {
    for (const ScalarRecord& record : nn::read_scalars(scalars)) keep(record.step, record.values);
  }
  for (ScalarRecord& record : again) add(record.step, std::move(record.values));
  write_description(plan, place ? place->steps : 0);
}

void RunFolder::write_description(const RunPlan& plan, int64_t step) const {
  const fs::path path = folder_ / "run.json";
  ordered_json description = plan.description;
  ordered_json starts = step > 0 ? starts_before(path) : ordered_json::array();
  starts.push_back({{"time", time_now()}, {"step", step}, {"command", plan.words}});
  description["starts"] = std::move(starts);
  write_text(path, to_text(description));
}

void RunFolder::keep(int64_t step, const Scalars& values) {
  auto x = static_cast<double>(step);
  if (!x_tag_.empty()) {
    const auto found = find_value(values, x_tag_.c_str());
    if (found == values.end()) return;
    x = found->second;
  }
  for (size_t chart = 0; chart < charts_.size(); ++chart) {
    for (size_t curve = 0; curve < charts_[chart].curves.size(); ++curve) {
      const auto value = find_value(values, charts_[chart].curves[curve].second.c_str());
      if (value != values.end()) points_[chart][curve].emplace_back(x, value->second);
    }
  }
}

void RunFolder::draw() const {
  std::vector<nn::Chart> charts;
  for (size_t i = 0; i < charts_.size(); ++i) {
    charts.push_back(
        {.title = charts_[i].title, .x_label = x_label_, .curves = {}, .percent = charts_[i].percent});
    for (size_t curve = 0; curve < points_[i].size(); ++curve)
      charts.back().curves.push_back({charts_[i].curves[curve].first, points_[i][curve]});
  }
  try {
    nn::write_charts(folder_ / "curves.svg", charts);
  } catch (const IoError& error) {
    complain("warning: {}; training goes on", error.what());
  }
}

void RunFolder::add(int64_t step, Scalars values) {
  keep(step, values);
  log_->scalars(step, std::move(values));
}

void RunFolder::finish(const std::string& report) {
  write_text(folder_ / "report.json", report);
  try {
    log_->close();
  } catch (const IoError& error) {
    throw IoError(fmt::format("the log is not complete: {}", error.what()));
  }
}

void RunFolder::flush() {
  try {
    log_->flush();
  } catch (const IoError&) {  // what could not be written is tried again, with a warning
  }
}

}  // namespace sinter::examples
