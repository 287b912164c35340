// What registers the ops of shard_cross_entropy.h beside cross_entropy.
#pragma once

#include <sinter/core/op/registry.h>

namespace sinter::ops {

void register_shard_cross_entropy(OpRegistry& registry);
void register_shard_cross_entropy_cuda(OpRegistry& registry);  // with cross_entropy's
/// The kernel of the op that gives the losses, on every kind of device: a copy of what the ranks have agreed
/// on.
void run_shard_cross_entropy(const KernelContext& context);

}  // namespace sinter::ops
