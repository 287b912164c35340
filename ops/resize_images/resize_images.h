// Boxes of 8-bit images of any sizes, resampled to one size, mirrored or not, as a normalised batch: the
// augmentation and the evaluation of photographs.
#pragma once

#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/common/image_output.h>

namespace sinter::ops {

struct ResizeImagesAttributes {
  ImageOutput output;
  int64_t channels = 3;  ///< of every image: 1 or 3

  bool operator==(const ResizeImagesAttributes&) const = default;
  template <class Self = ResizeImagesAttributes>
  static constexpr auto fields() {
    return std::tuple(field("output", &Self::output), field("channels", &Self::channels));
  }
};

struct ResizeImagesOptions {
  int64_t channels = 3;  ///< of every image: 1 or 3
};

/// pixels: uint8 (bytes), the images one after the other or wherever `extents` says, each row-major (height,
/// width, channels). extents: int64 (N, 3), for each image the offset of its first byte, its height and its
/// width. boxes: float64 (N, 5), for each the top, left, height and width of the part to show, in pixels
/// whose edges are whole numbers, and whether it is then mirrored left to right (not 0).
///
/// Resamples every box to output.height x output.width, bilinearly: each value is a mean of the inputs
/// weighted by a triangle one output pixel wide to each side, or one input pixel where the image grows, so
/// that shrinking is free of aliasing (as nn::data::resize and Pillow's BILINEAR, but for their rounding to 8
/// bits). The triangle reaches beyond the box, never beyond the image. A box is first cut down to its image,
/// and one that is then empty shows the nearest pixels. An image that does not lie in `pixels`, or has a
/// side beyond 2^30, is shown black. So nothing outside `pixels` is read, whatever the other two hold. No
/// gradient.
Tensor resize_images(const Tensor& pixels, const Tensor& extents, const Tensor& boxes,
                     const ImageOutput& output, const ResizeImagesOptions& options = {});

}  // namespace sinter::ops
