// What is told of a graph that a job made.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/passes/history/graph_history.h>
#include <sinter/passes/pass.h>

namespace sinter::nn {

struct GraphReport {
  std::vector<TensorSpec> inputs;
  std::string reason;                                  // why it was made
  std::vector<std::pair<std::string, double>> phases;  // of making it, and how long each took, ms
  std::vector<passes::PassReport> passes;
  passes::GraphHistory history;
};

std::string to_string(const GraphReport& report, const Program& program);

}  // namespace sinter::nn
