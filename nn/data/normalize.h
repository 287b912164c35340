// From bytes to the floats that a network reads.
#pragma once

#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {

/// y = (x / 255 - mean[c]) / std[c]. One value serves all channels, or there is one for each. The default
/// scales to [0, 1].
struct Normalization {
  std::vector<float> mean = {0.0f};
  std::vector<float> std = {1.0f};
};

/// The usual statistics of ImageNet and CIFAR-10 (RGB), and [-1, 1] as face recognition uses.
Normalization imagenet_normalization();
Normalization cifar10_normalization();
Normalization symmetric_normalization();

/// A normalisation made ready for images with a number of channels.
class Normalizer {
 public:
  /// Throws InvalidArgument unless mean and std have 1 or `channels` finite values, std > 0.
  Normalizer(const Normalization& normalization, int64_t channels);
  /// Writes height * width * channels floats in (C, H, W) or (H, W, C) order.
  void write(const Image& image, Layout layout, float* out) const;

 private:
  std::vector<float> scale_;
  std::vector<float> shift_;
};

}  // namespace sinter::nn::data
