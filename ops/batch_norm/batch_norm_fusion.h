// The rule by which jobs fuse batch_norm with what follows it.
#pragma once

#include <sinter/core/op/norm_chain.h>

namespace sinter::ops {

/// OpTraits::fuse_norm of batch_norm: a call of batch_norm_act. A chain is left if the addend is normalised
/// with other options, or if PReLU's slopes are neither one nor one per channel of the normalised tensor.
FusedNorm fuse_batch_norm(const NormChain& chain);

}  // namespace sinter::ops
