// Kernels of gather_grad with files of their own. For .cu files.
#pragma once

#include <sinter/core/op/registry.h>

namespace sinter::ops {

/// Registers the kernel that holds sums in shared memory (held_lines_cuda.cu).
void register_held_gather_grad_cuda(OpRegistry& registry);

}  // namespace sinter::ops
