#include "run/run_folder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>
#include <sinter/nn/data/image/files/encode_png.h>
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

constexpr std::uintmax_t kLargestDescription = 1 << 28;  // bytes: names of a million identities
constexpr const char* kDescriptionName = "run.json";

/// "2025-01-31T12:00:00Z"
std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// Since 1970.
double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// run.json; an empty object if there is none, or it is damaged.
ordered_json read_description(const fs::path& folder) {
  const fs::path path = folder / kDescriptionName;
  std::error_code ignored;
  if (fs::file_size(path, ignored) > kLargestDescription || ignored) return ordered_json::object();
  std::ifstream file(path);
  try {
    ordered_json description = parse_json(std::string{std::istreambuf_iterator<char>(file), {}});
    if (description.is_object()) return description;
    complain("warning: {} is not what a run has written; it is replaced", path.string());
  } catch (const IoError& error) {
    complain("warning: {} is not what a run has written ({}); it is replaced", path.string(), error.what());
  }
  return ordered_json::object();
}

/// A text of run.json; empty if there is none.
std::string text_of(const ordered_json& description, const char* key) {
  const auto found = description.find(key);
  return found != description.end() && found->is_string() ? found->get<std::string>() : "";
}

/// When the run of this folder was begun and gone on with before.
ordered_json starts_before(const fs::path& folder) {
  const ordered_json before = read_description(folder);
  if (!before.contains("starts") || !before["starts"].is_array()) return ordered_json::array();
  return before["starts"];
}

bool is_same_place(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::weakly_canonical(fs::absolute(a), ignored) == fs::weakly_canonical(fs::absolute(b), ignored);
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

std::string new_run() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string RunFolder::check_run(const char* option, const fs::path& folder, const std::string& run,
                                 const fs::path& checkpoints) {
  const ordered_json description = read_description(folder);
  const std::string logged = text_of(description, "run"), place = text_of(description, "checkpoints");
  const bool are_named = !run.empty() && !logged.empty();
  const bool is_own =
      are_named ? run == logged : is_same_place(place.empty() ? folder : fs::path(place), checkpoints);
  const bool is_of_old_version = run.empty() && logged.empty();  // without names; its paths may be relative
  if (RunLog::is_in(folder) && !is_own && !is_of_old_version) {
    throw Error(fmt::format(
        "{} {} holds the log of run {} (checkpoints in {}), but {} is of {}; name another folder", option,
        folder.string(), logged.empty() ? "that has no name" : logged, place.empty() ? "no folder" : place,
        checkpoints.string(), run.empty() ? "another" : "run " + run));
  }
  if (!run.empty()) return run;
  return is_own && !logged.empty() ? logged : new_run();
}

void RunFolder::check(const char* option, const fs::path& folder, bool resume) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(fmt::format("{} {} {}", option, folder.string(), reason));
  };
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) refuse("is no folder");
  fs::create_directories(folder, error);
  if (error) refuse(fmt::format("cannot be written: {}", error.message()));
  for (const char* name : {RunLog::kJsonName, kDescriptionName, "recipe.json", "curves.svg", "report.json"})
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

std::optional<std::vector<std::string>> RunFolder::last_words(const fs::path& folder) {
  const ordered_json starts = starts_before(folder);
  if (starts.empty()) return std::nullopt;
  std::vector<std::string> words;
  if (!starts.back().is_object() || !starts.back().contains("command")) return words;
  for (const auto& word : starts.back()["command"]) {
    if (word.is_string()) words.push_back(word);
  }
  return words;
}

RunFolder::RunFolder(const RunPlan& plan, const std::optional<LogPlace>& place)
    : folder_(plan.folder), over_(plan.over) {
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
  if (place && place->steps > 0 && !fs::exists(scalars) && fs::exists(folder_ / kDescriptionName))
    complain("warning: {} is gone; what was logged up to step {} is lost", scalars.string(), place->steps);
  log_ = std::make_unique<RunLog>(folder_, nn::RunLogOptions{.resume_at = resume_at});
  write_description(plan, place ? place->steps : 0);
  curves_ = read_curves(folder_);
  for (ScalarRecord& record : again) add(record.step, std::move(record.values));
}

void RunFolder::write_description(const RunPlan& plan, int64_t step) const {
  ordered_json description = plan.description;
  ordered_json starts = step > 0 ? starts_before(folder_) : ordered_json::array();
  starts.push_back({{"time", time_now()}, {"step", step}, {"command", plan.words}});
  description["starts"] = std::move(starts);
  write_text(folder_ / kDescriptionName, to_json_text(description));
}

void RunFolder::draw() const {
  try {
    nn::write_charts(folder_ / "curves.svg", charts_of({&curves_, 1}, over_));
  } catch (const IoError& error) {
    complain("warning: {}; training goes on", error.what());
  }
}

void RunFolder::add(int64_t step, Scalars values) {
  curves_.add({.step = step, .time = seconds_now(), .values = values});
  log_->scalars(step, std::move(values));
}

void RunFolder::picture(const std::string& tag, const nn::data::Image& image, int64_t step) {
  std::vector<uint8_t> png;
  nn::data::encode_png(image, png);
  log_->image(tag, {png.begin(), png.end()}, image.height, image.width, image.channels, step);
}

void RunFolder::hyper_parameters(const Recipe& recipe) {
  std::map<std::string, nn::HyperParameter> values;
  for (const auto& [option, text] : recipe) {
    nn::HyperParameter& value = values[option.substr(2)];
    double number = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text == "true" || text == "false") {
      value = text == "true";
    } else if (error == std::errc() && end == text.data() + text.size()) {
      value = number;
    } else {
      value = text;
    }
  }
  log_->hyper_parameters(values);
}

void RunFolder::write_report(const std::string& report) const {
  write_text(folder_ / "report.json", report);
}

void RunFolder::close() {
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
