// What a trainer's options say about augmentation beyond crops and flips.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sinter/nn/augment/mixing.h>
#include <sinter/nn/data/augmentation.h>

#include "trainer/option_table.h"

namespace sinter::examples {

/// Nothing of it by default.
struct AugmentationOptions {
  double mixup = 0.0, cutmix = 0.0;       ///< alpha of the shares' beta distribution; 0: off
  double random_erasing = 0.0;            ///< the probability
  std::vector<double> color_jitter = {};  ///< amounts of brightness, contrast, saturation and hue; empty: off
  std::vector<int64_t> rand_augment = {};  ///< steps and magnitude; empty: off
  std::string augment = {};                ///< policies by name, see augment_list.h; empty: none

  bool mixes() const { return mixup > 0 || cutmix > 0; }
};

/// --mixup, --cutmix, --augment and those of add_pixel_rows().
void add_augmentation_rows(OptionTable& table, AugmentationOptions& options);
/// What leaves labels alone: --random-erasing, --color-jitter and --randaugment.
void add_pixel_rows(OptionTable& table, AugmentationOptions& options);

/// A line for the start of a run; "none" without any.
std::string describe(const AugmentationOptions& options);

/// For the loader of training images. Pixels are erased to 0, the mean.
std::vector<nn::data::Augmentation> augmentations(const AugmentationOptions& options);

/// Mixes a batch as the options say, with draws of the default generator; where both mixup and CutMix are in
/// use, each batch takes one of them, evenly. Without them the images stay, and targets are the labels.
nn::MixedBatch mix(const AugmentationOptions& options, const Tensor& images, const Tensor& labels,
                   int64_t classes, Layout layout);

}  // namespace sinter::examples
