// What InsightFace and AdaFace do to training images at random.
#pragma once

#include <cstdint>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/data/transforms.h>

namespace sinter::nn::data {

/// How pixels are found where an image is resampled.
enum class Resampling {
  kNearest,   ///< the nearest one
  kBilinear,  ///< the four nearest, blended, also where an image shrinks
  kArea,      ///< resize(): free of aliasing where it shrinks
};

/// Resamples an image to `height` x `width` pixels and back to its size, so that what is small in it is gone.
/// Throws InvalidArgument unless there is a pixel.
void resize_and_back(Image& image, int64_t height, int64_t width, Resampling down = Resampling::kArea,
                     Resampling up = Resampling::kArea);

/// Blurs with a Gaussian window of `window` x `window` pixels, an odd number, whose deviation is
/// 0.3 ((window - 1) / 2 - 1) + 0.8; at the borders the image goes on mirrored, without its outermost pixels
/// twice. Throws InvalidArgument for another window, or one that reaches over a whole image.
void gaussian_blur(Image& image, int64_t window);

/// Makes all pixels black but those of a box, which stay where they are; edges are rounded to whole pixels.
void keep_box(Image& image, const Box& box);

/// What InsightFace trains with, in this order: with probability 0.1 resize_and_back() by 1/2 to 89/112; 0.2
/// gaussian_blur() of 3 or 5 pixels; 0.2 a hue turned by 0 to 20 degrees and a saturation of 1 to 1.2 times;
/// 0.1 no colour. Images have 3 channels. Runs on the workers, as the next does.
TransformPtr insightface_augmentation();

/// What AdaFace trains with, each with probability 0.2: keep_box() of 0.2 to 1 of the area and an aspect of
/// 3/4 to 4/3; resize_and_back() by 0.2 to 1 with a resampling drawn each way; brightness, contrast and
/// saturation of 0.5 to 1.5 times in an order of its own. (AdaFace also draws cubic and Lanczos resampling.)
/// Source: M. Kim, A. Jain, X. Liu, "AdaFace: quality adaptive margin for face recognition", CVPR 2022.
TransformPtr adaface_augmentation();

}  // namespace sinter::nn::data
