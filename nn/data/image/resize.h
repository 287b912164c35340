// Resampling of images.
#pragma once

#include <vector>

#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {

/// A rectangle in an image, in pixels; edges may lie between pixels.
struct Box {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

/// Resamples `box` of an image to `height` x `width` pixels, bilinearly: each output value is a mean of the
/// inputs weighted by a triangle one output pixel wide to each side, or one input pixel where the image
/// grows. Shrinking is thus free of aliasing, as in Pillow's BILINEAR (whose values it meets within 1).
/// Throws InvalidArgument unless the image has 1 or 3 channels, the box lies inside it with a size > 0, and
/// the output has at least one pixel.
void resize(const Image& image, const Box& box, int64_t height, int64_t width, Image& out);

/// All of the image to `height` x `width` pixels.
void resize(const Image& image, int64_t height, int64_t width, Image& out);

}  // namespace sinter::nn::data
