// The kernels of the reduce folder that stand in files of their own, and sums for other kernels.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

void run_broadcast_to_cpu(const KernelContext& context);
void run_max_grad_cpu(const KernelContext& context);
void run_min_grad_cpu(const KernelContext& context);

/// y = x summed to the shape of y, as the op sum_to does. Both floating-point, of one dtype.
void sum_to_cpu(const TensorView& x, const TensorView& y, void* workspace);
/// The scratch that it needs.
size_t sum_to_workspace_cpu(const Shape& x, const Shape& y);

}  // namespace sinter::ops
