// A normalisation with known statistics, which is y = x * scale + shift with a scale and a shift for each
// channel: what the passes share that fold it into convolutions. What stands in the arguments of those
// depends on leaves alone, so that a program computes it again only when one of them has changed
// (core/executor/program.h).
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include <sinter/core/graph/graph.h>
#include <sinter/ops/norm/activation.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::passes {

enum NormInput : size_t { kX, kWeight, kBias, kMean, kVariance };

/// Why the normalisation can be folded into no convolution; empty if it might.
inline std::string reason_against_folding(const GraphNode& norm) {
  const bool* const training = norm.attributes.find<bool>("training");
  if (training == nullptr || norm.attributes.find<double>("epsilon") == nullptr)
    return "it has other attributes";
  if (*training) return "it computes the statistics of the batch";
  if (norm.input(kMean) == nullptr || norm.input(kVariance) == nullptr) return "it has no statistics";
  const auto* const activation = norm.attributes.find<ops::fused::Activation>("activation");
  const bool adds = std::any_of(norm.inputs.begin() + kVariance + 1, norm.inputs.end(),
                                [](const GraphUse& use) { return use.value != nullptr; });
  if (adds || (activation != nullptr && *activation != ops::fused::Activation::kNone))
    return "it has an activation or an addend";
  for (size_t i = 1; i < norm.outputs.size(); ++i) {
    if (norm.outputs[i]->is_used()) return "its statistics are used";
  }
  return {};
}

inline bool have_one_layout(const GraphNode& norm, const GraphNode& convolution) {
  const Layout* const other = convolution.attributes.find<Layout>("layout");
  const Layout* const own = norm.attributes.find<Layout>("layout");
  return other != nullptr && own != nullptr && *other == *own;
}

/// What of the inputs of `node`, from `first` on, does not hold any more before `place`; null: all does.
inline const GraphValue* lost_input(const Graph& graph, const GraphNode& node, size_t first,
                                    const GraphNode& place) {
  for (size_t i = first; i < node.inputs.size(); ++i) {
    if (node.input(i) != nullptr && !graph.holds(*node.input(i), &place)) return node.input(i);
  }
  return nullptr;
}

/// The norm's weight / sqrt(variance + epsilon).
inline Tensor scale_of(const GraphNode& norm, const std::function<Tensor(const GraphValue&)>& wide) {
  const double epsilon = *norm.attributes.find<double>("epsilon");
  const Tensor scale = ops::rsqrt(wide(*norm.input(kVariance)) + epsilon);
  const GraphValue* const weight = norm.input(kWeight);
  return weight != nullptr ? scale * wide(*weight) : scale;
}

}  // namespace sinter::passes
