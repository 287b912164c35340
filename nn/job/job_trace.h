// What TrainJob and InferJob share: tracing a model, and keys of random numbers that follow the thread's
// generator.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// What a job computes: tensors from tensors.
using JobFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// `function`, given float32 in place of 16-bit inputs: for code that is traced as if all were float32,
/// before the pass for mixed precision.
JobFunction given_float32(JobFunction function);

/// Makes the variables of `model` leaves of the graph, under their names.
void declare_leaves(Graph& graph, const ModuleBase& model);

/// Calls `function` on traced inputs of `specs`, called `names`, and makes its results the outputs of the
/// graph. Nodes are said to come from the module in whose call they were made, "layer1.0.conv1", or from
/// `elsewhere` outside of modules.
void trace_function(Tracer& tracer, const ModuleBase& model, const JobFunction& function,
                    std::span<const TensorSpec> specs, std::span<const std::string> names,
                    const std::string& elsewhere);

/// The keys of a job's random numbers, which the thread's generator gives anew at every run.
class JobRandom {
 public:
  /// Notes where the thread's generator stands.
  JobRandom() : start_(default_generator().key()) {}

  /// Sets the generator back to where it stood, since a trace is no run, and lets the keys in `graph` follow
  /// a tensor of this object.
  void finish_trace(Graph& graph, Device device);
  /// Writes the generator's key for one run and moves the generator on as eager code would have done.
  void begin_run();

 private:
  RandomKey start_;
  uint64_t blocks_ = 0;  // that a run uses up
  Tensor base_;          // undefined: nothing is drawn
};

}  // namespace sinter::nn
