// What rewrites that give values another dtype or order of axes share.
#pragma once

#include <map>
#include <tuple>

#include <sinter/core/graph/tracer.h>

namespace sinter::passes {

/// Converted values, each made once for all who ask for it the same way. `Kind` tells conversions of one
/// value apart.
template <class Kind>
class ConvertedValues {
 public:
  explicit ConvertedValues(Graph& graph) : graph_(graph) {}

  /// What `make(traced tensor)` gives for `use`, which holds there. It is computed before `before`, or at the
  /// end for nullptr, unless it is there: whoever asks next must stand behind. Each version of memory is a
  /// value of its own, so none is given for another.
  template <class Make>
  GraphUse get(const GraphUse& use, const Kind& kind, GraphNode* before, const std::string& scope,
               Make make) {
    const auto key = std::tuple(use.value, kind, use.differentiable);
    if (const auto found = made_.find(key); found != made_.end()) return {found->second, use.differentiable};
    Tracer tracer(graph_, before);
    tracer.set_scope(scope);
    const GraphUse made = tracer.use_of(make(tracer.tensor(use)));
    made_.emplace(key, made.value);
    return {made.value, use.differentiable};
  }

 private:
  Graph& graph_;
  std::map<std::tuple<GraphValue*, Kind, bool>, GraphValue*> made_;
};

/// Whether input i of a node is one of those in `mask`; the mask of a variadic op repeats.
inline bool is_in(const GraphNode& node, uint64_t mask, size_t i) {
  const size_t declared = node.definition().variadic ? i % node.definition().inputs.size() : i;
  return declared < 64 && (mask >> declared & 1) != 0;
}

/// The one call that reads `value`; nullptr if there are others, or if it is a result of the job.
inline GraphNode* only_user(const GraphValue& value) {
  return value.users.size() == 1 && value.output_uses == 0 ? value.users.front() : nullptr;
}

/// "conv2d in layer1.0.conv1".
inline std::string name_of(const GraphNode& node) {
  return node.scope.empty() ? node.op->name() : node.op->name() + " in " + node.scope;
}

}  // namespace sinter::passes
