// Normalisation with given statistics, an addend and an activation: what batch_norm and batch_norm_act
// compute once they know mean and deviation. Jobs compute results of those again with it (passes/memory).
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>

namespace sinter::ops {

struct NormalizeActOptions {
  Layout layout = Layout::kNCHW;
  Activation activation = Activation::kNone;
  bool normalize_addend = false;  ///< the addend is normalised too, with its own statistics

  bool operator==(const NormalizeActOptions&) const = default;
  static constexpr auto fields() {
    using Options = NormalizeActOptions;
    return std::tuple(field("layout", &Options::layout), field("activation", &Options::activation),
                      field("normalize_addend", &Options::normalize_addend));
  }
};

/// y = act((x - mean) * inv_std * weight + bias + addend) per channel, or with the addend normalised
/// likewise.
///
/// x: (N, C), (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point dtypes. addend: as x, or undefined.
/// `norm`: mean and inv_std (C) must be there, weight and bias may be undefined (1 and 0); `addend_norm`
/// likewise, with normalize_addend only. alpha: (1) or (C), PReLU's slopes, with kPRelu only. The dtype of
/// alpha and of NormState is x's, or float32 if x is float16 or bfloat16. Not differentiable. Throws
/// InvalidArgument for other shapes and dtypes.
Tensor normalize_act(const Tensor& x, const NormState& norm, const NormalizeActOptions& options = {},
                     const Tensor& alpha = {}, const Tensor& addend = {}, const NormState& addend_norm = {});

}  // namespace sinter::ops
