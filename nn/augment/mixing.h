// Mixup and CutMix: images of a batch mixed with others of it, and targets to match.
#pragma once

#include <cstdint>

#include <sinter/core/base/layout.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

/// Each image of a batch mixed with the one before it, the first with the last.
struct MixedBatch {
  Tensor images;
  /// (N, classes), of the images' dtype: probabilities, for nn::CrossEntropyLoss. Rows add up to exactly 1:
  /// the larger share is rounded to the dtype, the smaller one is the rest.
  Tensor targets;
  Tensor labels;       ///< int64 (N): of both classes the one with the larger share, for counting hits
  double share = 1.0;  ///< of an image's own class
};

struct MixupOptions {
  double alpha = 1.0;   ///< > 0, at most 1000: shares are drawn from Beta(alpha, alpha)
  int64_t classes = 0;  ///< must be given
};

/// x[n] * share + x[n - 1] * (1 - share), with one share for the batch. `images`: floating-point (N, ...), on
/// any device. `labels`: int64 (N) in [0, classes). The share is drawn from `generator` on the host, so that
/// a program which saves its generator (checkpoints of default_generator().key()) goes on bit for bit;
/// nothing waits for the device. Source: H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz, "mixup: beyond
/// empirical risk minimization", 2017; torchvision's MixUp.
class Mixup {
 public:
  /// Throws InvalidArgument for options out of range.
  explicit Mixup(const MixupOptions& options);
  MixedBatch operator()(const Tensor& images, const Tensor& labels,
                        Generator& generator = default_generator()) const;

 private:
  MixupOptions options_;
};

struct CutMixOptions {
  double alpha = 1.0;  ///< as of MixupOptions
  int64_t classes = 0;
  Layout layout = Layout::kNCHW;
};

/// As Mixup, of images (N, C, H, W) or (N, H, W, C), but a box of each image is cut from the one before it.
/// The box is of a random place, the same for the batch, and has a part 1 - share of the image, or less where
/// it reaches beyond the border; shares count the pixels that are seen. Source: S. Yun et al., "CutMix:
/// regularization strategy to train strong classifiers with localizable features", ICCV 2019; torchvision's
/// CutMix.
class CutMix {
 public:
  explicit CutMix(const CutMixOptions& options);
  MixedBatch operator()(const Tensor& images, const Tensor& labels,
                        Generator& generator = default_generator()) const;

 private:
  CutMixOptions options_;
};

}  // namespace sinter::nn
