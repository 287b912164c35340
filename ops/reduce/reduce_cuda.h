// The kernels of the reduce folder that stand in files of their own.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

void run_broadcast_to_cuda(const KernelContext& context);
void run_max_grad_cuda(const KernelContext& context);
void run_min_grad_cuda(const KernelContext& context);
size_t extreme_grad_workspace_cuda(const KernelQuery& query);

}  // namespace sinter::ops
