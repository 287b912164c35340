// Max pooling on the CPU.
#pragma once

#include <cstdint>

#include <sinter/core/op/kernel.h>
#include <sinter/ops/pool/pool_geometry.h>

namespace sinter::ops {

size_t max_pool_workspace(const KernelQuery& query);
void run_max_pool(const KernelContext& context);
size_t max_pool_grad_workspace(const KernelQuery& query);
void run_max_pool_grad(const KernelContext& context);

}  // namespace sinter::ops
