// Normalisation of each sample by itself: over its features, over groups of its channels, or over
// each channel's image.
#pragma once

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct LayerNormOptions {
  double epsilon = 1e-5;          ///< >= 0, added to the variance
  bool affine = true;             ///< scale and shift each feature
  Layout layout = Layout::kNCHW;  ///< of images whose axes a `shape` of two or three counts
};

/// (x - mean) / sqrt(variance + epsilon) * weight + bias, mean and biased variance taken over the last axes,
/// those of `shape`; of images in another layout than options.layout, as to(Layout) makes them, over the same
/// elements if `shape` has three axes. A shape of one axis counts the last axis of x in whatever layout that
/// is: the channels of images behind ChangeLayout to kNHWC. Members: `weight` (ones) and `bias` (zeros) of
/// that shape, float32 even in a half-precision model. 16-bit inputs are normalised in float32 and rounded
/// once. Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization", arXiv:1607.06450.
class LayerNorm : public Module {
 public:
  /// Throws InvalidArgument for an empty or scalar shape or a negative epsilon.
  explicit LayerNorm(const Shape& shape, const LayerNormOptions& options = {});
  explicit LayerNorm(int64_t features, const LayerNormOptions& options = {})
      : LayerNorm(Shape{features}, options) {}

  /// Throws InvalidArgument unless the last axes of x are `shape`.
  Tensor forward(const Tensor& x) const override;

  Parameter weight;  ///< undefined unless affine
  Parameter bias;    ///< undefined unless affine

 private:
  Shape shape_;
  LayerNormOptions options_;
};

struct GroupNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance
  bool affine = true;     ///< scale and shift each channel
  Layout layout = Layout::kNCHW;
};

/// As LayerNorm, but over each of `groups` equal parts of the channels and all pixels, with a scale and shift
/// per channel: of (N, C, H, W), (N, H, W, C) under kNHWC, or (N, C). One group normalises whole samples, as
/// many groups as channels give instance normalisation. Members: `weight` (C), `bias` (C), float32. Source:
/// Y. Wu, K. He, "Group normalization", ECCV 2018.
class GroupNorm : public Module {
 public:
  /// Throws InvalidArgument unless channels is a positive multiple of groups, or for a negative epsilon.
  GroupNorm(int64_t groups, int64_t channels, const GroupNormOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;  ///< undefined unless affine
  Parameter bias;    ///< undefined unless affine

 private:
  int64_t groups_, channels_;
  GroupNormOptions options_;
};

struct InstanceNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance
  bool affine = false;    ///< scale and shift each channel
  Layout layout = Layout::kNCHW;
};

/// As GroupNorm with a group for every channel, of images alone; as torch's, without running statistics.
/// Members: `weight` (C), `bias` (C), float32. Source: as ops::instance_norm.
class InstanceNorm2d : public Module {
 public:
  /// Throws InvalidArgument unless there is a channel, or for a negative epsilon.
  explicit InstanceNorm2d(int64_t channels, const InstanceNormOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;  ///< undefined unless affine
  Parameter bias;    ///< undefined unless affine

 private:
  int64_t channels_;
  InstanceNormOptions options_;
};

}  // namespace sinter::nn
