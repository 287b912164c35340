// Squeeze-and-excitation: channels that are weighted by what the whole image holds of them.
#pragma once

#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct SqueezeExciteOptions {
  /// Channels between the two convolutions; 0: a sixteenth of the channels, rounded to a multiple of 8 and at
  /// least 8, as in timm.
  int64_t squeezed = 0;
  Layout layout = Layout::kNCHW;
};

/// x * sigmoid(fc2(relu(fc1(mean of each channel's image)))): (N, C, H, W), or (N, H, W, C) under kNHWC, to
/// the same shape. Members as in timm: the 1x1 convolutions `fc1` and `fc2`, with biases. Source: J. Hu et
/// al., "Squeeze-and-excitation networks", CVPR 2018.
class SqueezeExcite : public Module {
 public:
  /// Throws InvalidArgument unless `channels` is positive and `squeezed` is not negative.
  explicit SqueezeExcite(int64_t channels, const SqueezeExciteOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Conv2d fc1;
  Conv2d fc2;
};

}  // namespace sinter::nn
