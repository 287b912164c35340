// The command line of sinter_align.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sinter_align {

struct Options {
  std::string images;     ///< the folder that the paths of the landmarks lead from
  std::string landmarks;  ///< a CSV file
  std::string output;     ///< the folder for the faces
  int64_t size = 112;     ///< of a face, in pixels
  std::string format = "jpeg";
  int quality = 95;
  bool check = false;
  int64_t max_damaged = 0;
  bool force = false;
  int threads = 0;  ///< 0: one per processor
};

/// Fills `options`. An exit code means that there is nothing to do: help was asked for (0), or a mistake was
/// told (2).
std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace sinter_align
