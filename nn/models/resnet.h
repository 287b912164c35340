// Residual networks, for ImageNet and for CIFAR, with torchvision's names of parameters and buffers.
//
// Source: K. He et al., "Deep residual learning for image recognition", CVPR 2016. The bottlenecks are
// version 1.5, as in torchvision: the stride is in the 3x3 convolution. Convolutions start from
// init::kaiming_normal over the fan out.
#pragma once

#include <vector>

#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/module/default_layout.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// What stands beside a block that changes the size of the image or the number of channels.
enum class Shortcut {
  kProjection,  ///< option B of the paper: a 1x1 convolution and a batch norm, `downsample.0` and
                ///< `downsample.1`
  kPadding,     ///< option A: every stride-th pixel, with zero channels added on both sides; no parameters
};

/// Options of the ImageNet models.
struct ResNetOptions {
  int64_t classes = 1000;
  int64_t in_channels = 3;
  int64_t width = 64;                ///< channels of the stem and the first stage
  Layout layout = default_layout();  ///< of the input: (N, C, H, W) or (N, H, W, C)
  bool small_stem = false;  ///< 3x3 convolution of stride 1 and no max pooling, for images of 32x32 or so
  bool zero_init_residual = false;  ///< the last norm of each block starts at 0: blocks start as the identity
  Shortcut shortcut = Shortcut::kProjection;
};

/// Options of the CIFAR models.
struct CifarResNetOptions {
  int64_t classes = 10;
  int64_t in_channels = 3;
  int64_t width = 16;
  Layout layout = default_layout();
  bool zero_init_residual = false;
  Shortcut shortcut = Shortcut::kProjection;
};

/// What distinguishes one depth from another.
struct ResNetArchitecture {
  bool bottleneck = false;  ///< blocks 1x1, 3x3, 1x1 with four times as many output channels, else 3x3, 3x3
  std::vector<int64_t> blocks;  ///< per stage; all stages but the first halve the image and double the width
};

/// Images (N, in_channels, H, W), or (N, H, W, in_channels) under kNHWC, of any floating-point dtype, to
/// logits (N, classes) in the dtype that the model computes in.
/// Members as in torchvision: conv1, bn1, layer1, layer2, ... (one per stage), fc.
class ResNet : public Module {
 public:
  /// Throws InvalidArgument unless there is a stage, each stage has a block, and all counts are positive.
  ResNet(const ResNetArchitecture& architecture, const ResNetOptions& options);

  Tensor forward(const Tensor& x) const override;
  /// What `fc` sees: (N, channels of the last stage).
  Tensor features(const Tensor& x) const;

  Conv2d conv1;
  BatchNorm2d bn1;
  std::vector<Sequential> stages;
  Linear fc;

 private:
  ResNetOptions options_;
};

/// With 1000 classes: 11,689,512, 21,797,672, 25,557,032, 44,549,160 and 60,192,808 parameters.
ResNet resnet18(const ResNetOptions& options = {});
ResNet resnet34(const ResNetOptions& options = {});
ResNet resnet50(const ResNetOptions& options = {});
ResNet resnet101(const ResNetOptions& options = {});
ResNet resnet152(const ResNetOptions& options = {});

/// The paper's networks for CIFAR: a 3x3 stem of 16 channels and three stages of 3, 5, 7, 9 or 18 basic
/// blocks with 16, 32 and 64 channels. The paper uses option A shortcuts there (0.27, 0.46, 0.66, 0.85
/// and 1.7 million parameters); the default here is option B, which trains a little better and costs about
/// 3,000 parameters more.
ResNet resnet20(const CifarResNetOptions& options = {});
ResNet resnet32(const CifarResNetOptions& options = {});
ResNet resnet44(const CifarResNetOptions& options = {});
ResNet resnet56(const CifarResNetOptions& options = {});
ResNet resnet110(const CifarResNetOptions& options = {});

}  // namespace sinter::nn
