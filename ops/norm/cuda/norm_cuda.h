// The ways through a batch normalisation on a GPU. Each takes calls of the forward op and of the gradient.
#pragma once

#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/norm/plan/norm_resident_plan.h>

namespace sinter::ops {

// ---- streaming: passes over memory, for any call

size_t norm_streaming_bytes(const NormProblem& problem);
size_t norm_streaming_bytes(const NormGradProblem& problem);
void norm_streaming(const NormCall& call, const Stream& stream, void* workspace);
void norm_streaming(const NormGradCall& call, const Stream& stream, void* workspace);

// ---- resident: one kernel that keeps the tensor on chip between sums and map

/// The plan does not fit where the tensor does not, or where the call has what this kernel lacks.
NormResidentPlan plan_resident(const NormProblem& problem);
NormResidentPlan plan_resident(const NormGradProblem& problem);
/// `workspace` holds the plan's table.
void norm_resident(const NormCall& call, const NormResidentPlan& plan, const Stream& stream, void* workspace);
void norm_resident(const NormGradCall& call, const NormResidentPlan& plan, const Stream& stream,
                   void* workspace);

}  // namespace sinter::ops
