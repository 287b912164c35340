// A model's graph as export_onnx writes it: traced as InferJob traces, in NCHW, and which of its extents go
// with the size of the batch.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/nn/export/onnx.h>

namespace sinter::nn {

struct OnnxTrace {
  std::unique_ptr<Graph> graph;
  /// Of values whose extents go with the batch: of each axis, extent = so many times the batch; 0: fixed.
  std::map<const GraphValue*, std::vector<int64_t>> per_batch;
  /// The input among whose extents the batch is, by its index; -1: the batch is fixed.
  int batch_input = -1;
};

/// Throws as export_onnx does.
OnnxTrace trace_for_onnx(const ModuleBase& model, const JobFunction& function,
                         std::span<const TensorSpec> inputs, const OnnxOptions& options);

}  // namespace sinter::nn
