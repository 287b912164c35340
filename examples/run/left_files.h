// What a run left on the disk, told at its end.
#pragma once

#include <string>

namespace sinter::examples {

/// Where a run may have written; empty: nowhere.
struct LeftFiles {
  std::string checkpoints;   ///< folder
  std::string save_weights;  ///< file
  std::string exported;      ///< file
  std::string report;        ///< file
  std::string table;         ///< file with a line per epoch
  std::string log_folder;
  bool has_best = true;  ///< whether best.safetensors among the checkpoints is the run's best
};

/// A line for each that is there: the best and the last weights, the newest checkpoint, report and curves,
/// and the command that shows the log in TensorBoard. Empty if there is nothing.
std::string list_left(const LeftFiles& files);

}  // namespace sinter::examples
