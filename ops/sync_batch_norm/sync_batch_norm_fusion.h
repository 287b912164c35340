// The rule by which jobs fuse sync_batch_norm with what follows it.
#pragma once

#include <sinter/core/op/norm_chain.h>

namespace sinter::ops {

/// OpTraits::fuse_norm of sync_batch_norm: a call of the op itself with addend and activation. A chain is
/// left if a call has taken something in before, if the addend is normalised by another op, over other ranks
/// or in another layout, or if PReLU's slopes are neither one nor one per channel.
FusedNorm fuse_sync_batch_norm(const NormChain& chain);

}  // namespace sinter::ops
