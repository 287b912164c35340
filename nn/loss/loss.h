// Losses: small function objects with their options as members, `CrossEntropy{.label_smoothing = 0.1}(logits,
// labels)`.
#pragma once

#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>

namespace sinter::nn {

using ops::Reduction;

/// Cross-entropy between the softmax of logits (N, C) and class indices (N), int64, or class probabilities
/// (N, C); a scalar, float32 for half-precision logits. As ops::cross_entropy.
struct CrossEntropy {
  double label_smoothing = 0.0;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;

  Tensor operator()(const Tensor& logits, const Tensor& target) const;
};

/// The squared difference of two tensors of one shape and dtype: its mean (default), its sum, or as it is.
struct MseLoss {
  Reduction reduction = Reduction::kMean;

  /// Throws InvalidArgument if the shapes differ: they are not broadcast, which mostly hides a mistake.
  Tensor operator()(const Tensor& prediction, const Tensor& target) const;
};

}  // namespace sinter::nn
