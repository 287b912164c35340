// The command line of sinter_convert.
#pragma once

#include <optional>
#include <string>

namespace sinter_convert {

struct Options {
  std::string input;
  std::string output;  ///< empty with `list`
  std::string key;     ///< where the weights stand in a PyTorch file; empty: found
  bool list = false;
  bool force = false;
};

/// Fills `options`. An exit code means that there is nothing to do: help was asked for (0), or a mistake was
/// told (2).
std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace sinter_convert
