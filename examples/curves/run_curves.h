// Curves of runs: what pictures show of the numbers that runs have logged.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/log/curves.h>
#include <sinter/nn/log/scalars.h>

namespace sinter::examples {

/// What charts stand over.
enum class Over { kEpochs, kSteps, kSeconds };

/// Of one run, the values that charts show, and where they stand.
struct RunCurves {
  struct Point {
    double step, seconds, value;
  };

  std::string name;                                ///< in the legend, if there are several runs
  std::vector<double> starts;                      ///< when the run began and went on; seconds since 1970
  std::map<std::string, std::vector<Point>> tags;  ///< by tag
  std::vector<std::pair<double, double>> epochs;   ///< (steps, epochs) that were done
  std::optional<double> time;                      ///< of the last record; seconds since 1970
  double seconds = 0;                              ///< that the run took, without its pauses

  /// Adds the next record.
  void add(const nn::ScalarRecord& record);
};

/// What a run's folder holds. Throws IoError if its log cannot be read; run.json, which tells the starts, may
/// be missing.
RunCurves read_curves(const std::filesystem::path& folder);

/// Charts of losses, accuracies and learning rate, as far as they were logged. Of one run the curves are
/// called train and test; of several each run has a colour, and what is of training is dashed.
std::vector<nn::Chart> charts_of(std::span<const RunCurves> runs, Over over);

}  // namespace sinter::examples
