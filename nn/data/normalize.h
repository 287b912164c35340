// How bytes become the floats that a network reads.
#pragma once

#include <vector>

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

}  // namespace sinter::nn::data
