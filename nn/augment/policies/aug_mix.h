// AugMix: images mixed with changed versions of themselves.
#pragma once

#include <cstdint>
#include <string_view>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

struct AugMixOptions {
  int64_t severity = 3;   ///< the largest strength of a step, in [1, 10]
  int64_t width = 3;      ///< chains that are mixed, in [1, 16]
  int64_t depth = 0;      ///< steps of a chain, in [1, 16]; 0: from 1 to 3, at random
  double alpha = 1.0;     ///< of the distributions of shares, in (0, 1000]
  bool all_steps = true;  ///< brightness, colour, contrast and sharpness too, which the paper leaves out
};

/// Mixes each image with `width` versions of itself, each changed by a chain of random steps: autocontrast,
/// equalise, posterise, rotation, solarise, shear and translation along either axis. Shares of the chains are
/// drawn from Dirichlet(alpha, ..., alpha), that of the image itself from Beta(alpha, alpha): torchvision's
/// AugMix. Places from beyond the border are black, and the nearest pixel is shown. A loader refuses it for
/// samples with masks or boxes, which would not follow. Throws InvalidArgument for options out of range.
/// Source: D. Hendrycks et al., "AugMix: a simple data processing method to improve robustness and
/// uncertainty", ICLR 2020.
class AugMix final : public data::BatchAugmentation {
 public:
  explicit AugMix(const AugMixOptions& options = {});

  Stage stage() const override { return Stage::kPixels; }
  std::string_view moves_images() const override { return "aug_mix"; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  AugMixOptions options_;
};

}  // namespace sinter::nn
