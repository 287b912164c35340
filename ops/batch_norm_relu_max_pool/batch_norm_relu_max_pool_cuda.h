// The kernels of batch_norm_relu_max_pool on a GPU; those of the gradient are in a file of their own.
#pragma once

#include <cstddef>

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

size_t norm_pool_grad_cuda_bytes(const KernelQuery& query);
void run_norm_pool_grad_cuda(const KernelContext& context);

}  // namespace sinter::ops
