// Filters that whiten: what a network's first layer may start from, and stay at.
#pragma once

#include <cstdint>

#include <sinter/core/tensor/tensor.h>

namespace sinter::nn::init {

/// Filters (C * height * width, C, height, width) whose outputs on `images` are uncorrelated and of one size:
/// with e_k the k-th eigenvector of the mean of p p^T over all patches p of height x width pixels, and v_k
/// its eigenvalue, filter k is e_k / sqrt(v_k + epsilon), the largest eigenvalue first. The sign of a filter
/// is such that its largest value is positive. The mean is not subtracted: let images be normalised.
///
/// `images`: float32 (N, C, H, W) on the CPU; a few thousand do. The result does not depend on the number of
/// threads. Throws InvalidArgument for other tensors, values that are not finite, no patch at all, patches of
/// more than 1,024 values, or epsilon <= 0. Source: A. Coates, A. Ng, H. Lee, "An analysis of single-layer
/// networks in unsupervised feature learning", AISTATS 2011.
Tensor whitening_filters(const Tensor& images, int64_t height, int64_t width, double epsilon = 5e-4);

}  // namespace sinter::nn::init
