// AutoAugment: policies that were found by search.
#pragma once

#include <string_view>

#include <sinter/nn/data/augmentation.h>

namespace sinter::nn {

/// The data set that a policy was found for.
enum class AutoAugmentPolicy { kImageNet, kCifar10, kSvhn };

struct AutoAugmentOptions {
  AutoAugmentPolicy policy = AutoAugmentPolicy::kImageNet;
};

/// Draws for each image one of the 25 parts of a policy: two steps, each of which is done with its own
/// probability and has its own strength. Ranges are those of torchvision's AutoAugment; signed steps go
/// either way with probability 1/2. Places from beyond the border are black, and the nearest pixel is shown.
/// A loader refuses it for samples with masks or boxes, which would not follow. Source: E. Cubuk, B. Zoph, D.
/// Mane, V. Vasudevan, Q. Le, "AutoAugment: learning augmentation strategies from data", CVPR 2019, tables 7
/// to 9.
class AutoAugment final : public data::BatchAugmentation {
 public:
  explicit AutoAugment(const AutoAugmentOptions& options = {}) : options_(options) {}

  Stage stage() const override { return Stage::kPixels; }
  std::string_view moves_images() const override { return "auto_augment"; }
  Tensor apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const override;

 private:
  AutoAugmentOptions options_;
};

}  // namespace sinter::nn
