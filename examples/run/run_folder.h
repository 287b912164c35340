// The folder in which a run tells of itself: run.json says what it is, scalars.jsonl and a file for
// TensorBoard how it goes, curves.svg shows it, report.json says what came out.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/log/run_log.h>

#include "curves/run_curves.h"
#include "recipe/recipe.h"

namespace sinter::examples {

/// Names and values of a record.
using Scalars = std::vector<std::pair<std::string, double>>;

/// A name for a run that no other has: 16 random hexadecimal digits. It stands in run.json and checkpoints.
std::string new_run();

/// What a run is, and what its pictures show.
struct RunPlan {
  std::filesystem::path folder;
  const nlohmann::ordered_json& description;  ///< run.json, without its starts
  std::vector<std::string> words;             ///< the command line
  Over over;                                  ///< what curves.svg stands over
};

/// Where a run goes on.
struct LogPlace {
  int64_t steps = 0;          // that were taken
  bool test_follows = false;  // an epoch ends there, whose values are logged again
};

class RunFolder {
 public:
  /// Throws Error that names the option unless everything can be written to the folder, and it holds no other
  /// run's log.
  static void check(const char* option, const std::filesystem::path& folder, bool resume);

  /// Throws Error that names the option and both runs if the folder has the log of another run than `run`,
  /// whose checkpoints are in `checkpoints`. Of a run without a name yet, as it has no checkpoint or one of
  /// an earlier version, a log is its own if that names the same folder of checkpoints. Gives the run's name,
  /// a new one if need be.
  static std::string check_run(const char* option, const std::filesystem::path& folder,
                               const std::string& run, const std::filesystem::path& checkpoints);

  /// The command line, behind the program's name, of the run's last start in this folder; none if it holds no
  /// run.
  static std::optional<std::vector<std::string>> last_words(const std::filesystem::path& folder);

  /// Begins the log, or goes on with it at a place. Throws IoError.
  RunFolder(const RunPlan& plan, const std::optional<LogPlace>& place);

  /// Logs values after so many steps.
  void add(int64_t step, Scalars values);
  /// Logs a picture for TensorBoard, after so many steps.
  void picture(const std::string& tag, const nn::data::Image& image, int64_t step);
  /// Logs the recipe as TensorBoard's hyper-parameters: numbers and yes or no as such, all else as words.
  void hyper_parameters(const Recipe& recipe);
  /// Draws curves.svg anew. What cannot be written is a warning.
  void draw() const;

  /// Writes what was logged so far, as before a checkpoint: a run that is killed and goes on from there would
  /// lack it.
  void flush();

  /// Writes report.json. Throws IoError.
  void write_report(const std::string& report) const;
  /// Writes what is left of the log, to which nothing may be added then. Throws IoError.
  void close();

 private:
  void write_description(const RunPlan& plan, int64_t step) const;

  std::filesystem::path folder_;
  Over over_;
  RunCurves curves_;
  std::unique_ptr<nn::RunLog> log_;
};

}  // namespace sinter::examples
