// Whose kernels run the fused normalisations of a job: what passes/norm/choose_norm_backend.cpp asks and
// does.
#pragma once

#include <functional>
#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/passes/norm/call_race.h>
#include <sinter/passes/pass.h>

namespace sinter::passes {

/// A call of batch_norm_act and that of its gradient, which must agree: cuDNN hands on what only cuDNN reads.
struct NormPair {
  GraphNode* forward = nullptr;
  GraphNode* gradient = nullptr;
};

/// All pairs of a differentiated graph that Sinter's kernels are to run. Calls with more or fewer gradients
/// than one are left out.
std::vector<NormPair> norm_pairs(const Graph& graph);

/// What decides on a pair that cuDNN can run; the one that measures is run_race().
using NormBackendJudge = std::function<Verdict(const NormPair& pair)>;
Verdict race_norm_backends(const NormPair& pair);

/// The pass with a judge of one's own.
void choose_norm_backend(Graph& graph, PassContext& context, const NormBackendJudge& judge);

}  // namespace sinter::passes
