// Which normalisations get their sums from the convolution before them: what passes/norm/convolution_sums.cpp
// asks and does.
#pragma once

#include <functional>
#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/passes/norm/call_race.h>
#include <sinter/passes/pass.h>

namespace sinter::passes {

/// A normalised tensor, the x or the addend of a batch_norm_act, that comes from a convolution.
struct SummableNorm {
  GraphNode* convolution = nullptr;
  GraphNode* norm = nullptr;
  size_t image = 0;  ///< the norm's input that is the convolution's result
  size_t sums = 0;   ///< the norm's input that takes its sums
};

/// All of a graph, in training and on Sinter's kernels, for cuDNN's take no sums.
std::vector<SummableNorm> summable_norms(const Graph& graph);

/// Lets the convolution give the sums; gives the call that does so in its place.
GraphNode& take_sums(Graph& graph, const SummableNorm& norm);

/// What decides whether that pays.
using ConvolutionSumsJudge = std::function<Verdict(const SummableNorm& norm)>;

/// The pass with a judge of one's own.
void sum_in_convolutions(Graph& graph, PassContext& context, const ConvolutionSumsJudge& judge);

}  // namespace sinter::passes
