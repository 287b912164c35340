// A box of each image overwritten with one colour.
#pragma once

#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct EraseImagesOptions {
  std::vector<float> values = {0.0f};  ///< one for all channels, or one for each
  Layout layout = Layout::kNCHW;

  bool operator==(const EraseImagesOptions&) const = default;
  template <class Self = EraseImagesOptions>
  static constexpr auto fields() {
    return std::tuple(field("values", &Self::values), field("layout", &Self::layout));
  }
};

/// images: floating-point (N, C, H, W) or (N, H, W, C), with up to 128 channels. boxes: int32 (N, 4): top,
/// left, height and width in pixels; nothing is erased where a size is not positive, and what lies beyond the
/// border is passed over. No gradient. Throws InvalidArgument for other shapes and dtypes.
Tensor erase_images(const Tensor& images, const Tensor& boxes, const EraseImagesOptions& options = {});

}  // namespace sinter::ops
