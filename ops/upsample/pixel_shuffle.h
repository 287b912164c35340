// Images made larger by channels, and smaller into channels.
#pragma once

#include <cstdint>

#include <sinter/core/base/layout.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct PixelShuffleOptions {
  Layout layout = Layout::kNCHW;
};

/// (N, C r^2, H, W) to (N, C, H r, W r) with r = `factor`, or channels last: channel c r^2 + i r + j holds
/// the pixels in row i and column j of each square of r x r. Any dtype. Throws InvalidArgument unless factor
/// > 0 and the channels are a multiple of its square. Source: W. Shi et al., "Real-time single image and
/// video super-resolution using an efficient sub-pixel convolutional neural network", CVPR 2016.
Tensor pixel_shuffle(const Tensor& x, int64_t factor, const PixelShuffleOptions& options = {});

/// The inverse: (N, C, H r, W r) to (N, C r^2, H, W), of heights and widths that are multiples of `factor`.
Tensor pixel_unshuffle(const Tensor& x, int64_t factor, const PixelShuffleOptions& options = {});

}  // namespace sinter::ops
