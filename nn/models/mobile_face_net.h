// MobileFaceNet: a network for recognising faces on phones, with InsightFace's names of parameters and
// buffers.
//
// Sources: S. Chen et al., "MobileFaceNets: Efficient CNNs for accurate real-time face verification on mobile
// devices", CCBR 2018; the wider form is that of InsightFace's recognition/arcface_torch. Convolutions and
// the last linear layer start normal, with He's deviation for what leaves them, from default_generator().
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/core/base/size2d.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct MobileFaceNetOptions {
  int64_t dimensions = 512;  ///< of the embeddings
  /// The last filter is as large as the map that 112x112 leave, 7x7: each side is from 97 to 112.
  Size2d image_size = 112;
  int64_t in_channels = 3;
  int64_t scale = 2;              ///< on the widths 64, 64, 128 and 128 of the parts
  Layout layout = Layout::kNCHW;  ///< of the input: (N, C, H, W) or (N, H, W, C)
};

/// Images (N, in_channels, height, width), or (N, height, width, in_channels) under kNHWC, of any
/// floating-point dtype, to embeddings (N, dimensions), which are not yet of length one. Four parts, each of
/// which halves the image, of blocks that widen (1x1), filter each channel (3x3) and narrow again (1x1), with
/// BN behind each and PReLU behind the first two; then a filter for each channel that is as large as the map.
///
/// All from the convolution `conv_sep` on is float32 in a half-precision model too, and so are the
/// embeddings; under float64 it is float64.
///
/// Members as in InsightFace: layers, conv_sep, features.
class MobileFaceNet : public Module {
 public:
  /// `blocks`: how many residual ones each of the four parts has; one in the first is a plain convolution in
  /// 64 groups. Throws InvalidArgument unless there are four, each has a block, counts are positive, and
  /// images of a size as above.
  explicit MobileFaceNet(const std::vector<int64_t>& blocks, const MobileFaceNetOptions& options = {});

  /// Throws InvalidArgument for images of another shape than the options say.
  Tensor forward(const Tensor& x) const override;

  Sequential layers;
  AnyModule conv_sep;
  AnyModule features;

 private:
  Parameter first_weight_;
  MobileFaceNetOptions options_;
};

/// With 512 dimensions: 2,059,520 and, of twice the scale, 6,314,880 parameters.
MobileFaceNet mobile_face_net(const MobileFaceNetOptions& options = {});
MobileFaceNet mobile_face_net_large(const MobileFaceNetOptions& options = {});

}  // namespace sinter::nn
