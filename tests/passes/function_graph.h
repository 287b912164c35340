// Graphs of small functions of ops, and what they compute.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/runtime/random.h>
#include <sinter/passes/passes.h>

namespace sinter::passes::testing {

using Function = std::function<std::vector<Tensor>(std::vector<Tensor>)>;

/// The graph of `function` on inputs x0, x1, ... of these specs, whose leaves are `leaves` under their names.
inline std::unique_ptr<Graph> graph_of(const std::vector<TensorSpec>& inputs,
                                       const std::vector<std::pair<std::string, Tensor>>& leaves,
                                       const Function& function) {
  auto graph = std::make_unique<Graph>();
  for (const auto& [name, tensor] : leaves) graph->memory(tensor, GraphValue::Kind::kLeaf, name);
  Tracer tracer(*graph);
  std::vector<Tensor> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(tracer.tensor(graph->add_input(inputs[i], "x" + std::to_string(i))));
  }
  for (const Tensor& result : function(given)) graph->add_output(tracer.use_of(result));
  graph->verify();
  return graph;
}

/// Numbers between -1 and 1, float32.
inline Tensor random(const Shape& shape) {
  static Generator generator(20261122);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(2.0 * generator.uniform() - 1.0);
  return Tensor::from_values(values, shape);
}

/// Nodes whose op has this role, or this name.
inline size_t count(const Graph& graph, Role role) {
  size_t found = 0;
  for (const GraphNode* node : graph.nodes()) found += node->traits().role == role ? 1u : 0u;
  return found;
}
inline size_t count(const Graph& graph, const std::string& op) {
  size_t found = 0;
  for (const GraphNode* node : graph.nodes()) found += node->op->name() == op ? 1u : 0u;
  return found;
}

inline std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  return Program(graph.clone(), Device::cpu()).run(inputs);
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  double largest = x.size() == y.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    const double difference = std::abs(double{x[i]} - double{y[i]});
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

}  // namespace sinter::passes::testing
