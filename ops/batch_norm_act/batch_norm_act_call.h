// Calls of batch_norm_act and its gradient, as the kernels of ops/norm see them.
#pragma once

#include <sinter/ops/batch_norm_act/batch_norm_act.h>
#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// Where the inputs and outputs of the ops stand.
struct NormActInput {
  enum : size_t {
    kX,
    kWeight,
    kBias,
    kRunningMean,
    kRunningVar,
    kSums,
    kAlpha,
    kAddend,
    kAddendWeight,
    kAddendBias,
    kAddendRunningMean,
    kAddendRunningVar,
    kAddendSums,
    kCount
  };
};
struct NormActOutput {
  enum : size_t { kY, kMean, kInvStd, kMask, kAddendMean, kAddendInvStd };
};
struct NormActGradInput {
  enum : size_t {
    kX,
    kDy,
    kDy2,
    kMask,
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
struct NormActGradOutput {
  enum : size_t { kDx, kDweight, kDbias, kDaddend, kDalpha, kDaddendWeight, kDaddendBias };
};

NormProblem batch_norm_act_problem(const KernelQuery& query);
NormCall batch_norm_act_call(const KernelContext& context);

NormGradProblem batch_norm_act_grad_problem(const KernelQuery& query);
NormGradCall batch_norm_act_grad_call(const KernelContext& context);

/// The call is for Sinter's own kernels, not for cuDNN's.
template <class Options>
bool wants_own_kernel(const KernelQuery& query) {
  return query.attributes<Options>().backend == NormBackend::kSinter;
}

}  // namespace sinter::ops
