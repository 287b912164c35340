// The kernels of the reduce folder that stand in files of their own.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

void run_broadcast_to_cpu(const KernelContext& context);
void run_max_grad_cpu(const KernelContext& context);
void run_min_grad_cpu(const KernelContext& context);

}  // namespace sinter::ops
