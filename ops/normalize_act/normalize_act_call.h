// Calls of normalize_act, as the kernels of ops/norm see them.
#pragma once

#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// Where the op's inputs stand.
struct NormalizeActInput {
  enum : size_t {
    kX,
    kWeight,
    kBias,
    kMean,
    kInvStd,
    kAlpha,
    kAddend,
    kAddendWeight,
    kAddendBias,
    kAddendMean,
    kAddendInvStd
  };
};

NormProblem normalize_act_problem(const KernelQuery& query);
NormCall normalize_act_call(const KernelContext& context);

}  // namespace sinter::ops
