// Each row of a batch mixed with the row before it: the arithmetic of mixup and CutMix.
#pragma once

#include <cstdint>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct MixImagesOptions {
  double share = 1.0;  ///< of a row's own values, in [0, 1]
  /// Mixes nothing but a box of the images, the same for all; what lies beyond the border is passed over.
  bool boxed = false;
  int64_t top = 0, left = 0, height = 0, width = 0;
  Layout layout = Layout::kNCHW;  ///< of boxed images

  bool operator==(const MixImagesOptions&) const = default;
  template <class Self = MixImagesOptions>
  static constexpr auto fields() {
    return std::tuple(field("share", &Self::share), field("boxed", &Self::boxed), field("top", &Self::top),
                      field("left", &Self::left), field("height", &Self::height),
                      field("width", &Self::width), field("layout", &Self::layout));
  }
};

/// x[n] * share + x[n - 1] * (1 - share) for every row n of a floating-point x (N, ...), row 0 with the last;
/// if `boxed`, of images (N, C, H, W) or (N, H, W, C), in the box only. A share of 0 or 1 copies. No
/// gradient. Throws InvalidArgument for other dtypes and ranks, a share outside [0, 1], or a box of negative
/// size.
Tensor mix_images(const Tensor& x, const MixImagesOptions& options);

}  // namespace sinter::ops
