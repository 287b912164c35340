#include "run_folder.h"

#include <algorithm>
#include <ctime>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/nn/log/curves.h>
#include <sinter/nn/log/scalars.h>

#include "common/console.h"
#include "outputs.h"
#include "recipe.h"

namespace train_resnet {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using sinter::Error;
using sinter::IoError;
using sinter::nn::RunLog;
using sinter::nn::ScalarRecord;

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
  std::vector<ScalarRecord> records = sinter::nn::read_scalars(path);
  std::erase_if(records, [&](const ScalarRecord& record) {
    return record.step != step || find_value(record.values, "epoch") != record.values.end();
  });
  return records;
}

const char* option_of(const Options& options) {
  return options.log_dir.empty() ? "--checkpoints" : "--log-dir";
}

}  // namespace

void RunFolder::check(const Options& options) {
  const fs::path folder = options.log_folder();
  const auto refuse = [&](const std::string& reason) {
    throw Error(fmt::format("{} {} {}", option_of(options), folder.string(), reason));
  };
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) refuse("is no folder");
  fs::create_directories(folder, error);
  if (error) refuse(fmt::format("cannot be written: {}", error.message()));
  for (const char* name : {RunLog::kJsonName, "run.json", "curves.svg", "report.json"})
    check_file(option_of(options), folder / name);
  try {
    if (!options.resume && RunLog::is_in(folder)) {
      refuse(
          "holds the log of another run; add --resume (with --checkpoints) to go on with it, or name another "
          "folder");
    }
    if (fs::exists(folder / RunLog::kJsonName)) sinter::nn::read_scalars(folder / RunLog::kJsonName);
  } catch (const IoError& failure) {
    refuse(fmt::format("has a log that cannot go on, move it away: {}", failure.what()));
  }
}

RunFolder::RunFolder(const Options& options, const RunFacts& facts, const std::optional<LogPlace>& place)
    : folder_(options.log_folder()) {
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
  log_ = std::make_unique<RunLog>(folder_, sinter::nn::RunLogOptions{.resume_at = resume_at});
  for (ScalarRecord& record : again) log_->scalars(record.step, std::move(record.values));
  if (place) {
    for (const ScalarRecord& record : sinter::nn::read_scalars(scalars)) keep(record.values);
  }
  write_description(options, facts, place ? place->steps : 0);
}

void RunFolder::write_description(const Options& options, const RunFacts& facts, int64_t step) const {
  const fs::path path = folder_ / "run.json";
  ordered_json recipe = ordered_json::object();
  for (const auto& [option, value] : recipe_of(options)) recipe[option.substr(2)] = value;
  ordered_json starts = step > 0 ? starts_before(path) : ordered_json::array();
  starts.push_back({{"time", time_now()}, {"step", step}, {"command", options.words}});
  write_text(path, to_text({{"program", "train_resnet of Sinter " SINTER_VERSION},
                            {"data", facts.data},
                            {"data_kind", facts.data_kind},
                            {"train_images", facts.train_images},
                            {"test_images", facts.test_images},
                            {"classes", facts.classes},
                            {"device", facts.device},
                            {"device_name", facts.device_name},
                            {"parameters", facts.parameters},
                            {"steps_per_epoch", facts.steps_per_epoch},
                            {"layout", to_string(*options.layout)},
                            {"steps_are", *options.job ? "a job" : "eager"},
                            {"workers", options.workers},
                            {"load_weights", options.load_weights},
                            {"checkpoints", options.checkpoints},
                            {"recipe", recipe},
                            {"starts", starts}}));
}

void RunFolder::keep(const std::vector<std::pair<std::string, double>>& values) {
  const auto epoch = find_value(values, "epoch");
  if (epoch == values.end()) return;
  const auto add = [&](const char* tag, std::vector<std::pair<double, double>>& points) {
    if (const auto value = find_value(values, tag); value != values.end())
      points.emplace_back(epoch->second, value->second);
  };
  add("train/epoch_loss", train_loss_);
  add("train/epoch_accuracy", train_accuracy_);
  add("test/loss", test_loss_);
  add("test/accuracy", test_accuracy_);
}

void RunFolder::draw() const {
  const sinter::nn::Chart charts[] = {
      {.title = "Loss", .x_label = "epoch", .curves = {{"train", train_loss_}, {"test", test_loss_}}},
      {.title = "Accuracy",
       .x_label = "epoch",
       .curves = {{"train", train_accuracy_}, {"test", test_accuracy_}},
       .percent = true}};
  sinter::nn::write_charts(folder_ / "curves.svg", charts);
}

void RunFolder::add_epoch(int64_t step, std::vector<std::pair<std::string, double>> values) {
  keep(values);
  log_->scalars(step, std::move(values));
  try {
    draw();
  } catch (const IoError& error) {
    sinter::examples::complain("warning: {}; training goes on", error.what());
  }
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

}  // namespace train_resnet
