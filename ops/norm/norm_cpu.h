// Batch normalisation on the CPU, with or without what is fused into it, and its gradient. Workspaces are of
// the sizes that the functions beside them answer.
#pragma once

#include <cstddef>

#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

size_t norm_cpu_bytes(const NormProblem& problem);
void norm_cpu(const NormCall& call, void* workspace);

size_t norm_cpu_bytes(const NormGradProblem& problem);
void norm_cpu(const NormGradCall& call, void* workspace);

}  // namespace sinter::ops
