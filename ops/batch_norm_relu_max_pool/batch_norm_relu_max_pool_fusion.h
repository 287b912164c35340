// The rule by which jobs fuse batch_norm_act with the max_pool2d behind it.
#pragma once

#include <sinter/core/op/norm_chain.h>

namespace sinter::ops {

/// PairRule::fuse of batch_norm_act and max_pool2d: a call of batch_norm_relu_max_pool. A pair is left that
/// the op does not take, and where an element lies in so many windows that gathering its gradient from them,
/// once for the sums and once for the map, would cost more than a map of gradients.
FusedNorm fuse_batch_norm_pooling(const FoundCall& norm, const FoundCall& pooling);

}  // namespace sinter::ops
