// A convolution as an operation graph of cuDNN, and the engine configurations that cuDNN proposes for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>
#include <sinter/core/cuda/cudnn/cudnn_handles.h>

namespace sinter::cuda {

/// What a configuration must not do.
struct ConvRules {
  bool allow_tf32 = false;
  bool deterministic = false;

  bool operator==(const ConvRules&) const = default;
};

/// A tensor of an operation graph that lies in memory: its name there, and which of the arrays it is.
struct ConvTensor {
  int64_t id;
  void* (*array)(const ConvProblem& problem, const ConvArrays& arrays);
};

/// Those of a problem: x, the filters and y come first.
std::vector<ConvTensor> conv_tensors(const ConvProblem& problem);

/// The graph of one convolution, with the descriptors that it refers to.
struct ConvGraph {
  std::vector<CudnnDescriptor> parts;
  CudnnDescriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

/// nullptr if cuDNN refuses the problem.
std::shared_ptr<const ConvGraph> make_conv_graph(cudnnHandle_t handle, const ConvProblem& problem);

/// An engine with its knobs set.
struct ConvConfig {
  CudnnDescriptor descriptor;
  std::string name;  ///< "engine 38: 10=2 23=5": the same in every process of one version of cuDNN
};

/// The configurations that obey the rules, in the order of cuDNN's heuristics, without repetitions. Those of
/// its fallback heuristic, which may be very slow, come last if at all.
std::vector<ConvConfig> propose_conv_configs(const ConvGraph& graph, DType dtype, const ConvRules& rules,
                                             bool with_fallbacks);

}  // namespace sinter::cuda
