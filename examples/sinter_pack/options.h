// The command line of sinter_pack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sinter_pack {

struct Options {
  std::string images;  ///< the folder of class folders
  std::string output;  ///< the folder for the records
  std::string name = "train";
  int64_t width = 0;  ///< of the packed images; 0: files are packed as they are
  int64_t height = 0;
  int quality = 95;
  int threads = 0;  ///< 0: one per processor
  std::optional<uint64_t> shuffle;
  bool force = false;
};

/// Fills `options`. An exit code means that there is nothing to do: help was asked for (0), or a mistake was
/// told (2).
std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace sinter_pack
