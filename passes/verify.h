// Verification of passes: what a graph computes before and after a rewrite, on the data of a real step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sinter/passes/pass.h>

namespace sinter::passes {

/// Runs graphs on copies of their leaves, so that nobody's tensors change, and compares what comes out: the
/// graph's outputs, the gradients of its first output while it is not differentiated yet, and the leaves that
/// it changes in place.
class Verifier {
 public:
  struct Tolerance {
    double relative = 0.0;  ///< to the largest element of the tensor
    /// To the largest element of all gradients: for those that are nothing but what is left of large terms,
    /// as of biases before a norm.
    double of_all_gradients = 0.0;
    double absolute = 0.0;  ///< of gradients
    double rounding = 0.0;  ///< the relative distance of neighbouring numbers
    auto operator<=>(const Tolerance&) const = default;
  };

  /// `inputs` are what Program::run would be given; they are read only. All tensors are on `device`.
  Verifier(std::vector<Tensor> inputs, Device device);

  /// Runs the graph that the next pass will be given.
  void start(const Graph& graph, const PassContext& context);
  /// Runs the graph as `pass` has left it. Throws InternalError unless it gives what it gave before: the same
  /// bits if the pass keeps them (on a GPU only if settings::deterministic() asks for it), else within a
  /// tolerance for the narrowest floating-point dtype that either graph computes in, scaled by the largest
  /// element of the same tensor, or within what rounding makes of that tensor: by how much it moves when the
  /// inputs move by a rounding each. The message says what differs first, where, and both values.
  void check(const Pass& pass, const Graph& graph, const PassContext& context);

 private:
  struct Result {
    std::string name;  // "the gradient of conv1.weight"
    Tensor value;      // on the CPU
    bool is_gradient = false;
    Tensor leaf = {};  // of a leaf that the graph changes: the user's own tensor
  };
  struct Run {
    std::vector<Result> results;
    Tolerance tolerance;
  };

  /// How far the elements of the inputs are moved at most, relatively.
  struct Shake {
    double relative = 0.0;
    uint64_t seed = 0;
  };
  /// Runs a copy of the graph.
  Run run(const Graph& graph, const PassContext& context, Shake shake) const;
  static void complete(std::vector<Result>& results, const std::vector<Result>& others);

  std::vector<Tensor> inputs_;
  Device device_;
  Run before_;
};

}  // namespace sinter::passes
