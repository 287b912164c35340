// TrivialAugment: one random step of random strength for each image.
#pragma once

#include <string_view>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

/// Draws for each image one of RandAugment's 14 steps, evenly, and one of 31 strengths along ranges that are
/// wider: torchvision's TrivialAugmentWide. Nothing is to be tuned. Places from beyond the border are black,
/// and the nearest pixel is shown. A loader refuses it for samples with masks or boxes, which would not
/// follow. Source: S. Mueller, F. Hutter, "TrivialAugment: tuning-free yet state-of-the-art data
/// augmentation", ICCV 2021.
class TrivialAugment final : public data::BatchAugmentation {
 public:
  Stage stage() const override { return Stage::kPixels; }
  std::string_view moves_images() const override { return "trivial_augment"; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;
};

}  // namespace sinter::nn
