// Residual networks for recognising faces, with InsightFace's names of parameters and buffers.
//
// Source: J. Deng et al., "ArcFace: Additive angular margin loss for deep face recognition", CVPR 2019,
// section 3.1. Convolutions start from a normal distribution of deviation 0.1 (or another one), the fully
// connected layer as in PyTorch, all from default_generator().
#pragma once

#include <vector>

#include <sinter/core/base/size2d.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct IResNetOptions {
  int64_t dimensions = 512;  ///< of the embeddings
  Size2d image_size = 112;   ///< the fully connected layer is as large as this makes the last map
  int64_t in_channels = 3;
  int64_t width = 64;    ///< channels of the stem and the first stage
  double dropout = 0.0;  ///< before the fully connected layer
  /// Of the normal distribution around 0 from which convolutions start; 0: from that of Conv2d, as in
  /// PyTorch.
  double init_std = 0.1;
  Layout layout = Layout::kNCHW;  ///< of the input: (N, C, H, W) or (N, H, W, C)
};

/// Images (N, in_channels, height, width), or (N, height, width, in_channels) under kNHWC, of any
/// floating-point dtype, to embeddings (N, dimensions), which are not yet of length one. Every stage halves
/// the image, the first too, and all but the first double the width; a block is BN, conv 3x3, BN, PReLU,
/// conv 3x3, BN, and adds its input (through a 1x1 convolution and BN where the shape changes), without an
/// activation behind the sum.
///
/// The fully connected layer and the norm behind it are float32 in a half-precision model too, and so are the
/// embeddings; under float64 they are float64. The weight of that last norm stays 1: it requires no gradient
/// (set_requires_grad(true) on the model would thaw it).
///
/// Members as in InsightFace: conv1, bn1, prelu, layer1, layer2, ... (one per stage), bn2, fc, features.
class IResNet : public Module {
 public:
  /// `blocks` per stage. Throws InvalidArgument unless there is a stage, each stage has a block, and all
  /// counts and sizes are positive.
  explicit IResNet(const std::vector<int64_t>& blocks, const IResNetOptions& options = {});

  /// Throws InvalidArgument for images of another shape than the options say.
  Tensor forward(const Tensor& x) const override;

  Conv2d conv1;
  BatchNorm2d bn1;
  PReLU prelu;
  std::vector<Sequential> stages;
  BatchNorm2d bn2;
  Flatten flatten;
  Dropout dropout;
  Linear fc;
  BatchNorm1d features;

 private:
  IResNetOptions options_;
};

/// With 512 dimensions: 24,025,600, 34,139,328, 43,590,848, 65,156,160 and 118,833,920 parameters.
IResNet iresnet18(const IResNetOptions& options = {});
IResNet iresnet34(const IResNetOptions& options = {});
IResNet iresnet50(const IResNetOptions& options = {});
IResNet iresnet100(const IResNetOptions& options = {});
IResNet iresnet200(const IResNetOptions& options = {});

}  // namespace sinter::nn
