// Where the points of faces are: CSV files as detectors write them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/data/faces/align.h>
#include <sinter/nn/data/faces/text_lines.h>

namespace sinter::nn::data {

struct Landmarks {
  std::string path;  ///< relative, and without ".."
  FivePoints points;
  std::optional<double> score;  ///< of the detector
  int64_t line = 0;             ///< of the file, from 1
};

/// Lines "path,x1,y1,...,x5,y5" and on request ",score", or with the 68 points of iBUG 300-W in place of the
/// five (five_of_68). Points are in pixels of the upright image. A first line names the columns if none of
/// its fields behind the first is empty or a number, be it nan. A path with commas stands in quotation marks,
/// which are doubled in it; it may be one that escape_name() made, as `train_insightface --embed` writes
/// them. Throws IoError with file and line for everything else, paths that lead out of the folder, and a file
/// without faces.
std::vector<Landmarks> read_landmarks(TextLines& lines);
std::vector<Landmarks> read_landmarks(const std::filesystem::path& path);

/// Whether a path is relative, not empty, and stays below where it starts.
bool stays_below(const std::string& path);

}  // namespace sinter::nn::data
