// Whose kernels run the fused normalisations of a job: what passes/norm/choose_norm_backend.cpp asks and
// does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/graph/graph.h>
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

/// Why cuDNN cannot run a pair, nothing if it can, with cuDNN's version taken to be `version`.
std::optional<std::string> cudnn_constraint(const NormPair& pair, int64_t version);

/// Gives a pair to cuDNN, whose forward call leaves `reserve_bytes` for its gradient.
NormPair move_to_cudnn(Graph& graph, const NormPair& pair, int64_t reserve_bytes);

/// What decides between backends where both can run.
class NormBackendJudge {
 public:
  virtual ~NormBackendJudge() = default;
  /// As ops::cudnn_norm_version().
  virtual int64_t cudnn_version() = 0;
  /// Of a forward call, if cuDNN runs it.
  virtual int64_t reserve_bytes(const GraphNode& forward) = 0;

  struct Verdict {
    bool cudnn = false;
    std::string reason;
  };
  virtual Verdict judge(const NormPair& pair) = 0;
};

/// The pass with a judge of one's own.
void choose_norm_backend(Graph& graph, PassContext& context, NormBackendJudge& judge);

}  // namespace sinter::passes
