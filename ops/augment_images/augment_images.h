// One step of augmentation for each image of a batch of 8-bit pixels.
#pragma once

#include <cstdint>

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// What a step does; row n of `steps` is {step, p0, ..., p6}. Factors and places are whole numbers of 1/65536
/// (kStepOne is 1), so that every device computes the same bytes. Values are cut to [0, 255] and, where
/// nothing else is said, rounded down.
enum class ImageStep : int32_t {
  kNone,        ///< the image as it is; so does any number that is none of these
  kAffine,      ///< shows at the pixel (x, y) the nearest one to (p0 x + p1 y + p2, p3 x + p4 y + p5); black
                ///< beyond the border. Places are those of pixels' centres: the first one's is (1/2, 1/2).
  kBrightness,  ///< value * p0
  kContrast,    ///< value * p0 + mean * (1 - p0), where `mean` is that of the image's grey values
  kSaturation,  ///< value * p0 + grey * (1 - p0); of colour images
  kHue,         ///< the hue turned by p0, in turns; of colour images. Rounded to nearest
  kSharpness,  ///< value * p0 + smooth * (1 - p0), `smooth` a mean of 3 x 3 pixels in which the middle weighs
               ///< 5 of 13, rounded to nearest; pixels at the border stay
  kPosterize,  ///< keeps the p0 highest bits, p0 in [0, 8]
  kSolarize,   ///< 255 - value where the value is at least p0
  kAutocontrast,  ///< each channel's values spread from its least and largest to 0 and 255
  kEqualize,      ///< each channel's values mapped so that they occur evenly
  kSolarizeAdd,   ///< value + p0 where the value is less than 128
  kBlurX,  ///< a mean of a row's pixels, rounded to nearest: p0 is the weight of the pixel itself, p1 to p6
           ///< those of both its neighbours at distances 1 to 6. The image is mirrored at its border
  kBlurY,  ///< the same of a column's pixels
};

inline constexpr int32_t kStepOne = 1 << 16;
inline constexpr int64_t kStepFields = 8;

/// images: uint8 (N, H, W, C), C 1 or 3, less than 2^31 bytes each. steps: int32 (N, 8), see ImageStep. Gives
/// images of the same shape. Whatever `steps` holds, nothing outside `images` is read. Grey is 0.299 red +
/// 0.587 green + 0.114 blue, rounded. No gradient.
///
/// The steps are those of torchvision's and Pillow's functions of these names. A value may differ from
/// theirs by one level, as they round some intermediate results. kBlurX and then kBlurY are torchvision's
/// gaussian_blur of a kernel of up to 13 x 13.
Tensor augment_images(const Tensor& images, const Tensor& steps);

}  // namespace sinter::ops
