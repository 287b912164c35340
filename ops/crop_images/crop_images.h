// Windows of 8-bit images of one size, mirrored or not, as a normalised batch: the augmentation of small
// pictures.
#pragma once

#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/common/image_output.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::ops {

struct CropImagesAttributes {
  ImageOutput output;
  PadMode border = PadMode::kConstant;  ///< what lies beyond the border of an image; kConstant: black

  bool operator==(const CropImagesAttributes&) const = default;
  template <class Self = CropImagesAttributes>
  static constexpr auto fields() {
    return std::tuple(field("output", &Self::output), field("border", &Self::border));
  }
};

struct CropImagesOptions {
  PadMode border = PadMode::kConstant;  ///< what lies beyond the border of an image; kConstant: black
};

/// images: uint8 (N, H, W, C) with up to 128 channels. windows: int32 (N, 3), for each image the row and the
/// column of the window's top left pixel and whether the window is then mirrored left to right (not 0).
/// Gives the windows of output.height x output.width pixels, normalised. A window may lie anywhere, on and
/// beyond the border (mirrored as often as need be under PadMode::kReflect); nothing outside `images` is
/// read, whatever `windows` holds. No gradient.
Tensor crop_images(const Tensor& images, const Tensor& windows, const ImageOutput& output,
                   const CropImagesOptions& options = {});

}  // namespace sinter::ops
