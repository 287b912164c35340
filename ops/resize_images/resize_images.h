// Boxes of 8-bit images of any sizes, resampled to one size, mirrored or not, as a normalised batch: the
// augmentation and the evaluation of photographs.
#pragma once

#include <string_view>

#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/common/image_output.h>

namespace sinter::ops {

/// How far an output value looks, and how it weighs what it sees. One step is the distance of two output
/// pixels, or of two input pixels where the image grows.
enum class ResizeFilter : uint8_t {
  kBilinear,  ///< a triangle, one step to each side
  kBicubic,   ///< a cubic of -1/2, two steps to each side, whose results are cut to [0, 255]
};

/// "bilinear" or "bicubic".
std::string_view to_string(ResizeFilter filter);

struct ResizeImagesAttributes {
  ImageOutput output;
  int64_t channels = 3;  ///< of every image: 1 or 3
  ResizeFilter filter = ResizeFilter::kBilinear;

  bool operator==(const ResizeImagesAttributes&) const = default;
  template <class Self = ResizeImagesAttributes>
  static constexpr auto fields() {
    return std::tuple(field("output", &Self::output), field("channels", &Self::channels),
                      field("filter", &Self::filter));
  }
};

struct ResizeImagesOptions {
  int64_t channels = 3;  ///< of every image: 1 or 3
  ResizeFilter filter = ResizeFilter::kBilinear;
};

/// pixels: uint8 (bytes), the images one after the other or wherever `extents` says, each row-major (height,
/// width, channels). extents: int64 (N, 3), for each image the offset of its first byte, its height and its
/// width. boxes: float64 (N, 5), for each the top, left, height and width of the part to show, in pixels
/// whose edges are whole numbers, and whether it is then mirrored left to right (not 0).
///
/// Resamples every box to output.height x output.width: each value is a mean of the inputs weighted by
/// `filter`, so that shrinking is free of aliasing (as nn::data::resize and Pillow's BILINEAR and BICUBIC,
/// but for their rounding to 8 bits). The filter reaches beyond the box, never beyond the image. A box is
/// first cut down to its image, and one that is then empty shows the nearest pixels. An image that does not
/// lie in `pixels`, or has a side beyond 2^30, is shown black. So nothing outside `pixels` is read, whatever
/// the other two hold. No gradient.
Tensor resize_images(const Tensor& pixels, const Tensor& extents, const Tensor& boxes,
                     const ImageOutput& output, const ResizeImagesOptions& options = {});

}  // namespace sinter::ops
