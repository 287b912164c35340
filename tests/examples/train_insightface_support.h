// Command lines of train_insightface for tests.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/comm/communicator.h>

#include "train_insightface/options.h"

namespace train_insightface {

using Words = std::vector<const char*>;

inline std::optional<int> parse(const Words& words, Options& options) {
  std::vector<char*> argv = {const_cast<char*>("train_insightface")};
  for (const char* word : words) argv.push_back(const_cast<char*>(word));
  return parse_options(static_cast<int>(argv.size()), argv.data(), options);
}

/// The complete options of a command line that trains on made-up faces.
inline Options options_of(Words words, sinter::Device device = {}) {
  words.insert(words.begin(), {"--synthetic", "20"});
  Options options;
  EXPECT_EQ(parse(words, options), std::nullopt);
  complete(options, device);
  return options;
}

inline std::shared_ptr<sinter::Communicator> alone() {
  return sinter::Communicator::join(sinter::ProcessEnvironment{});
}

}  // namespace train_insightface
