// Transposed two-dimensional convolution.
#pragma once

#include <sinter/core/base/size2d.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct ConvTranspose2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;         ///< cut off from each side of the output
  Size2d output_padding = 0;  ///< rows and columns added at the end; less than the stride
  Size2d dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  Layout layout = Layout::kNCHW;  ///< of input and output; under kNHWC the weight is kept as OHWI
};

/// The convolution that maps sizes the other way round, each input pixel spread by the filter over the
/// output: (N, in, H, W) to (N, out, H', W'), or channels last, with H' = (H - 1) stride - 2 padding +
/// dilation (kernel - 1) + output_padding + 1. Members: `weight` (in, out/groups, kernel height, kernel
/// width), `bias` (out), which start as in PyTorch. Source: V. Dumoulin, F. Visin, "A guide to convolution
/// arithmetic for deep learning", arXiv:1603.07285, 4.
class ConvTranspose2d : public Module {
 public:
  /// Throws InvalidArgument unless both channel counts are positive multiples of `groups` and the options are
  /// in range.
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, Size2d kernel,
                  const ConvTranspose2dOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;
  Parameter bias;  ///< undefined without one

 private:
  Size2d kernel_;
  ConvTranspose2dOptions options_;
};

}  // namespace sinter::nn
