// Calls of batch_norm, batch_norm_act and their gradients, as the kernels of ops/norm see them.
#pragma once

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// Where the inputs and outputs of batch_norm_act and its gradient stand. Those of batch_norm are the first
/// five, and the first three.
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
    kMean,
    kInvStd,
    kAddendMean,
    kAddendInvStd,
    kShare,
    kCount
  };
};
struct NormActOutput {
  enum : size_t { kY, kMean, kInvStd, kMask, kAddendMean, kAddendInvStd };
};
/// Where what belongs to one of the normalised tensors begins: weight, bias, running mean and variance and
/// sums; given mean and inverse deviation; and those that were computed, among the outputs.
struct NormActPlaces {
  size_t weight, mean, mean_output;
};
inline constexpr NormActPlaces kMainPlaces{NormActInput::kWeight, NormActInput::kMean, NormActOutput::kMean};
inline constexpr NormActPlaces kAddendPlaces{NormActInput::kAddendWeight, NormActInput::kAddendMean,
                                             NormActOutput::kAddendMean};
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

NormProblem batch_norm_problem(const KernelQuery& query);
NormCall batch_norm_call(const KernelContext& context);

NormGradProblem batch_norm_grad_problem(const KernelQuery& query);
NormGradCall batch_norm_grad_call(const KernelContext& context);

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
