// RandAugment as timm has it, with which the recipes of "ResNet strikes back" were made.
#pragma once

#include <cstdint>
#include <string_view>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

struct TimmRandAugmentOptions {
  int64_t steps = 2;       ///< that are drawn for each image, in [1, 16]; timm's n
  double magnitude = 9;    ///< their mean strength, in [0, 10]; timm's m
  double deviation = 0.5;  ///< of the strength, which is normally distributed and cut to [0, 10]; timm's mstd
  double probability = 0.5;  ///< that a drawn step is done; timm's p
};

/// Draws `steps` of 15 steps for each image, evenly and with repetition: autocontrast, equalise, invert,
/// rotation, posterise, solarise, solarise by addition, colour, contrast, brightness, sharpness, shear and
/// translation along either axis; all are stronger for a larger magnitude: timm's rand-m9-mstd0.5-inc1.
/// Places from beyond the border are black, and the nearest pixel is shown. A loader refuses it for samples
/// with masks or boxes, which would not follow. Throws InvalidArgument for options out of range. Source: R.
/// Wightman, H. Touvron, H. Jegou, "ResNet strikes back", 2021.
class TimmRandAugment final : public data::BatchAugmentation {
 public:
  explicit TimmRandAugment(const TimmRandAugmentOptions& options = {});

  Stage stage() const override { return Stage::kPixels; }
  std::string_view moves_images() const override { return "timm_rand_augment"; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  TimmRandAugmentOptions options_;
};

}  // namespace sinter::nn
