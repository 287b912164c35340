// The gradient of sync_batch_norm.
#pragma once

#include <vector>

#include <sinter/core/op/op_def.h>

namespace sinter::ops {

/// Made of ops that exist: the gradient with constant statistics, which gives the sums per channel on the
/// way; one sum of those over the ranks; and what the statistics' dependence on x adds, in one pass.
///
///   dx = dx0 - weight * inv_std * share * (sum dz + (x - mean) * inv_std * sum dz * (x - mean) * inv_std)
std::vector<Tensor> sync_batch_norm_gradient(const GradientContext& context);

}  // namespace sinter::ops
