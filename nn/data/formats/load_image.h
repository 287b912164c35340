// One picture from a file, as a network reads it.
#pragma once

#include <filesystem>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/image/jpeg.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/data/transforms.h>
#include <sinter/nn/module/default_layout.h>

namespace sinter::nn::data {

/// As in DataLoaderOptions: with the options of the loader that a model was tested with, the picture goes the
/// same way.
struct LoadImageOptions {
  DecodeOptions decode = {};  ///< 3 channels, upright
  Transforms transforms = {};
  Normalization normalization = {};
  Layout layout = nn::default_layout();
  DType dtype = DType::kFloat32;  ///< float32, float16 or bfloat16
  Device device = {};
};

/// A JPEG, PNG, PGM or PPM as a batch of one: (1, C, H, W), or (1, H, W, C) under kNHWC. By default RGB in
/// [0, 1] of the picture's own size. Throws IoError, naming the file, if it cannot be read or is damaged, and
/// InvalidArgument for options out of range.
///
///   Tensor x = nn::data::load_image("cat.jpg", {.transforms = {nn::data::resize_center_crop(256, 224)},
///                                               .normalization = nn::data::imagenet_normalization()});
Tensor load_image(const std::filesystem::path& path, const LoadImageOptions& options = {});

}  // namespace sinter::nn::data
