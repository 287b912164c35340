// The loss of training: cross-entropy, or binary cross-entropy of each class, with weights of classes.
#pragma once

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/dataset.h>

#include "options.h"

namespace train_resnet {

/// Of logits (N, C) and class indices (N) or probabilities (N, C), as mixing makes them.
struct ClassLoss {
  bool is_binary = false;
  double label_smoothing = 0.0;
  double bce_threshold = 0.0;  // of targets; 0: they stay shares
  sinter::Tensor weight = {};  // (C), float32 on the logits' device; undefined: none

  /// Binary: the mean over images and classes of softplus(-x) t + softplus(x) (1 - t), each times the class's
  /// weight, as timm's BinaryCrossEntropy. Its targets are smoothed, t (1 - s) + s / C, whether they were
  /// mixed or not, as timm's mixup does.
  sinter::Tensor operator()(const sinter::Tensor& logits, const sinter::Tensor& target) const;
};

/// As the options say, on `device`. Throws InvalidArgument unless there is a weight for each class, or, for
/// balanced ones, an image of each class, whose labels are known.
ClassLoss make_loss(const Options& options, const sinter::nn::data::Dataset& train, sinter::Device device);

}  // namespace train_resnet
