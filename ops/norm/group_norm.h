// Normalisation of each sample by itself, as functions: over its features, over groups of its channels, or
// over each channel's image.
#pragma once

#include <cstdint>

#include <sinter/core/base/layout.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct LayerNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance
};

struct GroupNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance
  Layout layout = Layout::kNCHW;
};

/// All of these: (x - mean) / sqrt(variance + epsilon) * weight + bias, with the biased variance. Weight and
/// bias may be undefined, each by itself, and of another floating-point dtype than x. The 16-bit dtypes
/// compute in float32 and round once. Throw InvalidArgument for shapes that do not fit together, and for a
/// negative epsilon.

/// Mean and variance of the last axes of x, which are `shape`, as weight and bias are. Source: J. Ba, J.
/// Kiros, G. Hinton, "Layer normalization", arXiv:1607.06450.
Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight = {}, const Tensor& bias = {},
                  const LayerNormOptions& options = {});

/// Of each of `groups` equal parts of the channels and all pixels; weight and bias (C). x: (N, C, H, W),
/// (N, H, W, C) under kNHWC, or (N, C). Source: Y. Wu, K. He, "Group normalization", ECCV 2018.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  const GroupNormOptions& options = {});

/// Of each channel's image: a group for every channel. Source: D. Ulyanov, A. Vedaldi, V. Lempitsky,
/// "Instance normalization: the missing ingredient for fast stylization", arXiv:1607.08022.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     const GroupNormOptions& options = {});

}  // namespace sinter::ops
