// The rule by which jobs fuse a normalisation with what follows it.
#pragma once

#include <sinter/core/op/norm_chain.h>

namespace sinter::ops {

/// OpTraits::fuse_norm of batch_norm, and of batch_norm_act as long as nothing is fused into it: one call of
/// batch_norm_act. A chain is left whose normalisations have different options, or one of which has taken
/// something in before, or whose PReLU has slopes that are neither one nor one per channel.
FusedNorm fuse_batch_norm(const NormChain& chain);

}  // namespace sinter::ops
