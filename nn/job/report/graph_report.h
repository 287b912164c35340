// What is told of a graph that a job made.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/passes/calls/call_verifier.h>
#include <sinter/passes/history/graph_history.h>
#include <sinter/passes/pass.h>

namespace sinter::nn {

struct GraphReport {
  std::vector<TensorSpec> inputs;
  std::string reason;                                  // why it was made
  std::vector<std::pair<std::string, double>> phases;  // of making it, and how long each took, ms
  std::vector<passes::PassReport> passes;
  passes::GraphHistory history;
  bool checks_calls = false;              // the next run is to be checked call by call
  std::vector<passes::CallCheck> checks;  // what came of it
};

/// Runs the program of a graph, under a CallVerifier if its calls are to be checked: once. A warning names
/// the first that is wrong.
std::vector<Tensor> run_program(Program& program, std::span<const Tensor> inputs, GraphReport& report);

std::string to_string(const GraphReport& report, const Program& program);

}  // namespace sinter::nn
