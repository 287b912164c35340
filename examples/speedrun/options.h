// The command line of speedrun.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/base/dtype.h>

namespace speedrun {

struct Options {
  std::string data, device = "auto", precision;
  double epochs = 9.9;
  int64_t runs = 1, batch = 1024, width = 64, seed = 0;
  bool whole = false;
  std::vector<std::string> without;  // parts of the recipe

  bool with(const char* part) const { return std::ranges::find(without, part) == without.end(); }
  /// In which 16-bit type to compute, if in one.
  std::optional<sinter::DType> precision_on(sinter::Device chosen) const;
};

/// Reads the command line; gives the exit code where the program is to end: 0 for --help, 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace speedrun
