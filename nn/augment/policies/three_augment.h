// Grey, solarised and blurred pictures: 3-Augment, and its parts by themselves.
#pragma once

#include <string_view>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

/// Makes each image grey, or inverts its values of 128 and more, or blurs it (a Gaussian whose deviation is
/// drawn evenly from 0.1 to 2 pixels): one of the three, evenly. Grey images stay as they are where the first
/// is drawn. Source: H. Touvron, M. Cord, H. Jegou, "DeiT III: revenge of the ViT", ECCV 2022, which has
/// colour jitter of 0.3 beside it.
class ThreeAugment final : public data::BatchAugmentation {
 public:
  Stage stage() const override { return Stage::kPixels; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;
};

struct RandomGreyscaleOptions {
  double probability = 0.1;
};

/// Makes images grey, of as many channels as before: torchvision's RandomGrayscale. Throws InvalidArgument
/// for a probability out of range.
class RandomGreyscale final : public data::BatchAugmentation {
 public:
  explicit RandomGreyscale(const RandomGreyscaleOptions& options = {});

  Stage stage() const override { return Stage::kPixels; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  RandomGreyscaleOptions options_;
};

struct RandomBlurOptions {
  double probability = 0.5;
  double min_sigma = 0.1, max_sigma = 2.0;  ///< of the deviation in pixels, drawn evenly; in (0, 2]
};

/// Blurs images by a Gaussian, of 13 x 13 pixels: torchvision's GaussianBlur. Throws InvalidArgument for
/// options out of range.
class RandomBlur final : public data::BatchAugmentation {
 public:
  explicit RandomBlur(const RandomBlurOptions& options = {});

  Stage stage() const override { return Stage::kPixels; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  RandomBlurOptions options_;
};

}  // namespace sinter::nn
