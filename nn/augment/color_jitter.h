// Random brightness, contrast, saturation and hue.
#pragma once

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

/// As of torchvision's ColorJitter: factors are drawn from [max(0, 1 - amount), 1 + amount], turns of the hue
/// from [-hue, hue]. 0: that one stays.
struct ColorJitterOptions {
  double brightness = 0.0;  ///< in [0, 100], as the next two
  double contrast = 0.0;
  double saturation = 0.0;
  double hue = 0.0;  ///< in turns, in [0, 0.5]
};

/// Changes pixels by the four in an order of its own for each image. Saturation and hue leave grey images as
/// they are. Throws InvalidArgument for options out of range.
class ColorJitter final : public data::BatchAugmentation {
 public:
  explicit ColorJitter(const ColorJitterOptions& options);

  Stage stage() const override { return Stage::kPixels; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  ColorJitterOptions options_;
};

}  // namespace sinter::nn
