// Calls of batch_norm and its gradient, as the kernels of ops/norm see them.
#pragma once

#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

NormProblem batch_norm_problem(const KernelQuery& query);
NormCall batch_norm_call(const KernelContext& context);

NormGradProblem batch_norm_grad_problem(const KernelQuery& query);
NormGradCall batch_norm_grad_call(const KernelContext& context);

}  // namespace sinter::ops
