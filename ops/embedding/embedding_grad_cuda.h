// A kernel of embedding_grad with a file of its own. For .cu files.
#pragma once

#include <sinter/core/op/registry.h>

namespace sinter::ops {

/// Registers the kernel that sorts the look-ups.
void register_sorted_embedding_grad_cuda(OpRegistry& registry);

}  // namespace sinter::ops
