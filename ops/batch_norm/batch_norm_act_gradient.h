// The gradient of batch_norm_act as a rule.
#pragma once

#include <vector>

#include <sinter/core/op/op_def.h>

namespace sinter::ops {

/// OpDef::gradient of batch_norm_act: a call of batch_norm_act_grad. Where the statistics are those of all
/// ranks' batches (NormParameters::share), it takes them for constants and gives the sums per channel on the
/// way; these are summed once over the ranks; and what the statistics' dependence on x adds follows in one
/// pass:
///
///   dx = dx0 - weight * inv_std * share * (sum dz + (x - mean) * inv_std * sum dz * (x - mean) * inv_std)
std::vector<Tensor> batch_norm_act_gradient(const GradientContext& context);

}  // namespace sinter::ops
