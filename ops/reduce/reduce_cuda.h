// The kernels of the reduce folder that stand in files of their own, and sums for other kernels.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

void run_broadcast_to_cuda(const KernelContext& context);
void run_max_grad_cuda(const KernelContext& context);
void run_min_grad_cuda(const KernelContext& context);
size_t extreme_grad_workspace_cuda(const KernelQuery& query);

/// y = x summed to the shape of y, as the op sum_to does. Both floating-point, of one dtype.
void sum_to_cuda(const Stream& stream, const TensorView& x, const TensorView& y, void* workspace);
/// The scratch that it needs.
size_t sum_to_workspace_cuda(const TensorSpec& x, const Shape& y);

}  // namespace sinter::ops
