// RandAugment: a few random steps of one strength for each image.
#pragma once

#include <cstdint>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

struct RandAugmentOptions {
  int64_t steps = 2;      ///< of each image, in [1, 16]; torchvision's num_ops
  int64_t magnitude = 9;  ///< their strength, in [0, bins)
  int64_t bins = 31;      ///< in [2, 1000]; torchvision's num_magnitude_bins
};

/// Draws `steps` of 14 steps for each image, evenly and with repetition: identity, shear and translation
/// along either axis, rotation, brightness, colour, contrast, sharpness, posterise, solarise, autocontrast
/// and equalise. Their ranges are those of torchvision's RandAugment; the signed ones go either way with
/// probability 1/2. Places from beyond the border are black, and the nearest pixel is shown. Colour leaves
/// grey images as they are. A loader refuses it for samples with masks or boxes, which would not follow.
/// Throws InvalidArgument for options out of range. Source: E. Cubuk, B. Zoph, J. Shlens, Q. Le,
/// "RandAugment: practical automated data augmentation with a reduced search space", 2019.
class RandAugment final : public data::BatchAugmentation {
 public:
  explicit RandAugment(const RandAugmentOptions& options = {});

  Stage stage() const override { return Stage::kPixels; }
  std::string_view moves_images() const override { return "rand_augment"; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  RandAugmentOptions options_;
};

}  // namespace sinter::nn
