// Random erasing: a box of some images overwritten.
#pragma once

#include <vector>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

struct RandomErasingOptions {
  double probability = 0.5;                       ///< that an image loses a box
  double min_area = 0.02, max_area = 0.33;        ///< of the box, as a part of the image's
  double min_aspect = 0.3, max_aspect = 1 / 0.3;  ///< height / width, drawn evenly in the logarithm
  std::vector<float> values = {
      0.0f};  ///< of the normalised images, where 0 is the mean: one, or one a channel
};

/// Overwrites a random box of normalised images. A box that does not fit is drawn again; after ten the image
/// stays as it is. Throws InvalidArgument for options out of range. Source: Z. Zhong, L. Zheng, G. Kang, S.
/// Li, Y. Yang, "Random erasing data augmentation", 2017; torchvision's RandomErasing.
class RandomErasing final : public data::BatchAugmentation {
 public:
  explicit RandomErasing(const RandomErasingOptions& options = {});

  Stage stage() const override { return Stage::kNormalized; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  RandomErasingOptions options_;
};

}  // namespace sinter::nn
