// NormBackendRace: the judge that measures.
#pragma once

#include <sinter/passes/norm/norm_backend.h>

namespace sinter::passes {

/// Times both backends for each problem that it is asked about and remembers the winner, in memory and on the
/// disk (core/runtime/plan_cache.h). Without autotuning a problem that nobody timed stays with Sinter's
/// kernels, and with settings::deterministic() all do, for the bits would depend on a measurement.
class NormBackendRace final : public NormBackendJudge {
 public:
  int64_t cudnn_version() override;
  int64_t reserve_bytes(const GraphNode& forward) override;
  Verdict judge(const NormPair& pair) override;
};

/// Microseconds of a forward call and its gradient, one run after the other, in tensors of their own and out
/// of a cold cache; under cuDNN if `reserve_bytes` is given. Throws Unsupported and OutOfMemory.
double time_norm_pair(const NormPair& pair, std::optional<int64_t> reserve_bytes);

}  // namespace sinter::passes
