// Resampling of images.
#pragma once

#include <vector>

#include <sinter/nn/data/image/image.h>
#include <sinter/ops/resize_images/resize_images.h>

namespace sinter::nn::data {

using ops::ResizeFilter;

/// A rectangle in an image, in pixels; edges may lie between pixels.
struct Box {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

/// Resamples `box` of an image to `height` x `width` pixels: each output value is a mean of the inputs that
/// are weighted by `filter`. Shrinking is thus free of aliasing, as in Pillow's BILINEAR and BICUBIC (whose
/// values it meets within 1, but for sharp edges under kBicubic, where Pillow cuts rows to [0, 255] first).
/// Throws InvalidArgument unless the image has 1 or 3 channels, the box lies inside it with a size > 0, and
/// the output has at least one pixel.
void resize(const Image& image, const Box& box, int64_t height, int64_t width, Image& out,
            ResizeFilter filter = ResizeFilter::kBilinear);

/// All of the image to `height` x `width` pixels.
void resize(const Image& image, int64_t height, int64_t width, Image& out,
            ResizeFilter filter = ResizeFilter::kBilinear);

}  // namespace sinter::nn::data
