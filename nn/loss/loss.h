// Losses: small function objects with their options as members, `CrossEntropyLoss{.label_smoothing =
// 0.1}(logits, labels)`. Their results are means, unless `reduction` says otherwise.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>

namespace sinter::nn {

using ops::Reduction;

/// Cross-entropy between the softmax of logits and class indices (int64) or class probabilities (of the
/// logits' dtype). float32 for half-precision logits. As ops::cross_entropy and torch's CrossEntropyLoss:
///
///   logits (N, C)         target (N) or (N, C)
///   logits (C)            target () or (C): one sample
///   logits (N, C, H, W)   target (N, H, W) or (N, C, H, W): a class for every pixel; channels last under
///                         kNHWC
///
/// `weight` (C), if given, multiplies the terms of each class; the mean over class indices is then divided by
/// the sum of the weights of the targets, as in PyTorch. What weighs nothing, a class or a row, has no part
/// in the loss and no gradient, even where its term is infinite or NaN; PyTorch gives NaN there. Under
/// Reduction::kNone the result has the shape of the class indices. Throws InvalidArgument for other shapes
/// and dtypes.
struct CrossEntropyLoss {
  double label_smoothing = 0.0;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};             ///< of the dtype of the result, without a gradient
  Layout layout = Layout::kNCHW;  ///< of logits of rank 4

  Tensor operator()(const Tensor& logits, const Tensor& target) const;
};

/// The same of logarithms of probabilities, as log_softmax gives them: minus the one of the target class.
/// Shapes, weights and classes that weigh nothing are those of CrossEntropyLoss, but for class probabilities,
/// which are none here; `target` must be within [0, C) or ignore_index.
struct NLLLoss {
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};             ///< of the dtype of the result, without a gradient
  Layout layout = Layout::kNCHW;  ///< of log-probabilities of rank 4

  Tensor operator()(const Tensor& log_probabilities, const Tensor& target) const;
};

/// max(|anchor - positive| - |anchor - negative| + margin, 0), of rows (N, D) with Euclidean distances:
/// `positive` is to be nearer to its anchor than `negative`, by the margin. Each difference is raised by
/// 1e-6, as in PyTorch, so that equal rows have a gradient. With `swap` the distance of positive and negative
/// counts where that is smaller. Source: V. Balntas et al., "Learning local feature descriptors with triplets
/// and shallow convolutional neural networks", BMVC 2016.
struct TripletMarginLoss {
  double margin = 1.0;
  bool swap = false;
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const;
};

/// Of rows a, b (N, D) and targets (N), floating-point: 1 - cos(a, b) where the target is 1, else max(cos(a,
/// b) - margin, 0).
struct CosineEmbeddingLoss {
  double margin = 0.0;
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& target) const;
};

/// Each of the following takes two tensors of one shape and floating-point dtype, and throws InvalidArgument
/// if the shapes differ: they are not broadcast, which mostly hides a mistake. Under Reduction::kNone the
/// result has their shape. 16-bit tensors are widened: the result is float32.

/// The squared difference.
struct MSELoss {
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& prediction, const Tensor& target) const;
};

/// The absolute difference; its gradient where there is none is 0.
struct L1Loss {
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& prediction, const Tensor& target) const;
};

/// Half the squared difference d where |d| < delta, else delta (|d| - delta / 2). Source: P. Huber, "Robust
/// estimation of a location parameter", The Annals of Mathematical Statistics 1964.
struct HuberLoss {
  double delta = 1.0;  ///< > 0
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& prediction, const Tensor& target) const;
};

/// The Huber loss divided by beta, its delta: steep 1 far from 0. With beta = 0, the absolute difference.
struct SmoothL1Loss {
  double beta = 1.0;  ///< >= 0
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& prediction, const Tensor& target) const;
};

/// Binary cross-entropy between sigmoid(logits) and targets in [0, 1], without ever rounding a probability to
/// 0 or 1: (1 - target) softplus(logit) + target * pos_weight * softplus(-logit). A term that weighs
/// nothing is 0, also at an infinite logit, and has no gradient there.
struct BCEWithLogitsLoss {
  double pos_weight = 1.0;  ///< >= 0: above 1 for classes that are rare
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& logits, const Tensor& target) const;
};

/// The Kullback-Leibler divergence sum_c target_c (log target_c - log_probability_c) of rows, (N, C) or more
/// axes, the first of which counts samples. `target` holds probabilities or, with log_target, their
/// logarithms; where a probability is 0 its term is 0, whatever log_probability is. kMean divides the sum by
/// the number of samples, which is what torch calls "batchmean"; kNone gives the terms.
struct KLDivLoss {
  bool log_target = false;
  Reduction reduction = Reduction::kMean;
  Tensor operator()(const Tensor& log_probabilities, const Tensor& target) const;
};

}  // namespace sinter::nn
