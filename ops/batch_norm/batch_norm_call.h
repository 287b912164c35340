// Calls of batch_norm, batch_norm_act and their gradients, as the kernels of ops/norm see them, and the rules
// of these ops that have files of their own.
#pragma once

#include <sinter/core/op/norm_chain.h>
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

/// The options of batch_norm as those of batch_norm_act.
BatchNormActOptions act_options(const BatchNormOptions& options);
inline const BatchNormActOptions& act_options(const BatchNormActOptions& options) {
  return options;
}

/// Of batch_norm and batch_norm_act, whose options these are.
template <class Options>
NormProblem batch_norm_problem(const KernelQuery& query);
template <class Options>
NormCall batch_norm_call(const KernelContext& context);

NormGradProblem batch_norm_grad_problem(const KernelQuery& query);
NormGradCall batch_norm_grad_call(const KernelContext& context);

NormGradProblem batch_norm_act_grad_problem(const KernelQuery& query);
NormGradCall batch_norm_act_grad_call(const KernelContext& context);

/// OpTraits::fuse_norm of batch_norm, and of batch_norm_act as long as nothing is fused into it: one call of
/// batch_norm_act. A chain is left whose normalisations have different options, or one of which has taken
/// something in before, or whose PReLU has slopes that are neither one nor one per channel.
FusedNorm fuse_batch_norm(const NormChain& chain);

/// OpDef::gradient of batch_norm_act: a call of batch_norm_act_grad. Where the statistics are those of all
/// ranks' batches (NormTensors::share), it takes them for constants and gives the sums per channel on the
/// way; these are summed once over the ranks; and what the statistics' dependence on x adds follows in one
/// pass:
///
///   dx = dx0 - weight * inv_std * share * (sum dz + (x - mean) * inv_std * sum dz * (x - mean) * inv_std)
std::vector<Tensor> batch_norm_act_gradient(const GradientContext& context);

/// The call is for Sinter's own kernels, not for cuDNN's.
template <class Options>
bool wants_own_kernel(const KernelQuery& query) {
  return query.attributes<Options>().backend == NormBackend::kSinter;
}

}  // namespace sinter::ops
