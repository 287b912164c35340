// What the tests of passes share: graphs of small models, and their texts without what does not matter there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/graph/tracer.h>
#include <sinter/nn/job/job_trace.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/nn.h>
#include <sinter/passes/passes.h>

namespace sinter::passes::testing {

/// The graph of a function of images, traced as jobs do it.
std::unique_ptr<Graph> traced(const nn::ModuleBase& model, const nn::JobFunction& function,
                              const std::vector<Shape>& shapes, DType dtype = DType::kFloat32);

template <class Model>
std::unique_ptr<Graph> traced(const Model& model, const Shape& shape, DType dtype = DType::kFloat32) {
  const nn::JobFunction forward = [&](std::span<const Tensor> inputs) {
    return std::vector<Tensor>{model(inputs[0])};
  };
  return traced(model, forward, {shape}, dtype);
}

/// The nodes of a graph, without dtypes and shapes, and of their attributes only those named `kept`.
std::string outline(const Graph& graph,
                    const std::vector<std::string>& kept = {"activation", "normalize_addend"});

/// Runs one pass, checks the graph, and gives what the pass reported.
PassReport run(void (*pass)(Graph&, PassContext&), Graph& graph, bool training = true,
               bool differentiated = false);

}  // namespace sinter::passes::testing
