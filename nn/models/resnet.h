// Residual networks, for ImageNet and for CIFAR, with torchvision's names of parameters and buffers, or
// timm's where torchvision has no such network.
//
// Sources: K. He et al., "Deep residual learning for image recognition", CVPR 2016. The bottlenecks are
// version 1.5, as in torchvision: the stride is in the 3x3 convolution. ResNeXt: S. Xie et al., "Aggregated
// residual transformations for deep neural networks", CVPR 2017; wide networks: S. Zagoruyko, N. Komodakis,
// "Wide residual networks", BMVC 2016; ResNet-D: T. He et al., "Bag of tricks for image classification with
// convolutional neural networks", CVPR 2019; SE-ResNet: see squeeze_excite.h. Convolutions start from
// init::kaiming_normal over the fan out.
#pragma once

#include <string>
#include <vector>

#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// What stands beside a block that changes the size of the image or the number of channels.
enum class Shortcut {
  kProjection,   ///< option B of the paper: a 1x1 convolution and a batch norm, `downsample.0` and
                 ///< `downsample.1`
  kPadding,      ///< option A: every stride-th pixel, with zero channels added on both sides; no parameters
  kAveragePool,  ///< of ResNet-D: windows of 2x2 are averaged, then as kProjection with stride 1;
                 ///< `downsample.1` and `downsample.2`
};

/// Options of the ImageNet models.
struct ResNetOptions {
  int64_t classes = 1000;
  int64_t in_channels = 3;
  int64_t width = 64;             ///< channels of the stem and the first stage
  Layout layout = Layout::kNCHW;  ///< of the input: (N, C, H, W) or (N, H, W, C)
  bool small_stem = false;  ///< 3x3 convolution of stride 1 and no max pooling, for images of 32x32 or so
  bool zero_init_residual = false;  ///< the last norm of each block starts at 0: blocks start as the identity
  Shortcut shortcut = Shortcut::kProjection;
  int64_t groups = 1;  ///< of the 3x3 convolutions of bottlenecks
  /// Channels of each group of the 3x3 convolutions in the first stage, where `width` is 64; else in
  /// proportion, rounded down. Twice as many in each further stage.
  int64_t width_per_group = 64;
  /// Three 3x3 convolutions in place of the 7x7 one, the first two with width / 2 channels: `conv1.0`,
  /// `conv1.3`, `conv1.6`, and their norms. With small_stem all of stride 1.
  bool deep_stem = false;
  bool squeeze_excite = false;  ///< a SqueezeExcite behind the last norm of each block: `se`
  /// The probability with which the last block drops its branch, in training; those before it drop theirs
  /// less often, in equal steps down to 0 at the first. Also known as drop path. Source: see StochasticDepth.
  double stochastic_depth = 0.0;
  StochasticDepthMode stochastic_depth_mode = StochasticDepthMode::kRow;
};

/// Options of the CIFAR models.
struct CifarResNetOptions {
  int64_t classes = 10;
  int64_t in_channels = 3;
  int64_t width = 16;
  Layout layout = Layout::kNCHW;
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
  /// Throws InvalidArgument unless there is a stage, each stage has a block, all counts are positive, the
  /// probability is in [0, 1), the width is even under deep_stem, and groups and width_per_group are those of
  /// bottlenecks.
  ResNet(const ResNetArchitecture& architecture, const ResNetOptions& options);

  Tensor forward(const Tensor& x) const override;
  /// What `fc` sees: (N, channels of the last stage).
  Tensor features(const Tensor& x) const;
  /// The images behind each stage, largest first: (N, C, H, W) or (N, H, W, C), for networks on top of these.
  std::vector<Tensor> feature_maps(const Tensor& x) const;

  AnyModule conv1;  ///< a Conv2d, or a Sequential under deep_stem
  BatchNorm2d bn1;
  std::vector<Sequential> stages;
  Linear fc;

 private:
  Tensor before_stages(const Tensor& x) const;

  ResNetOptions options_;
};

/// With 1000 classes: 11,689,512, 21,797,672, 25,557,032, 44,549,160 and 60,192,808 parameters.
ResNet resnet18(const ResNetOptions& options = {});
ResNet resnet34(const ResNetOptions& options = {});
ResNet resnet50(const ResNetOptions& options = {});
ResNet resnet101(const ResNetOptions& options = {});
ResNet resnet152(const ResNetOptions& options = {});

/// With groups, and with wide bottlenecks; these set `groups` and `width_per_group` of the options. With 1000
/// classes: 25,028,904, 88,791,336, 83,455,272, 68,883,240 and 126,886,696 parameters.
ResNet resnext50_32x4d(const ResNetOptions& options = {});
ResNet resnext101_32x8d(const ResNetOptions& options = {});
ResNet resnext101_64x4d(const ResNetOptions& options = {});
ResNet wide_resnet50_2(const ResNetOptions& options = {});
ResNet wide_resnet101_2(const ResNetOptions& options = {});

/// timm's ResNet-D: these set `deep_stem` and `shortcut`. With 1000 classes: 11,708,744, 21,816,904,
/// 25,576,264 and 44,568,392 parameters.
ResNet resnet18d(const ResNetOptions& options = {});
ResNet resnet34d(const ResNetOptions& options = {});
ResNet resnet50d(const ResNetOptions& options = {});
ResNet resnet101d(const ResNetOptions& options = {});

/// timm's SE-ResNet: these set `squeeze_excite`. With 1000 classes: 11,779,624, 21,960,416, 28,088,024
/// and 49,326,872 parameters.
ResNet seresnet18(const ResNetOptions& options = {});
ResNet seresnet34(const ResNetOptions& options = {});
ResNet seresnet50(const ResNetOptions& options = {});
ResNet seresnet101(const ResNetOptions& options = {});

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
