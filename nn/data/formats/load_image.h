// Pictures from files: as a network reads one, and as data sets of functions do.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/image/jpeg.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/data/transforms.h>

namespace sinter::nn::data {

/// As in DataLoaderOptions: with the options of the loader that a model was tested with, the picture goes the
/// same way.
struct LoadImageOptions {
  DecodeOptions decode = {};  ///< 3 channels, upright
  Transforms transforms = {};
  Normalization normalization = {};
  Layout layout = Layout::kNCHW;
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

/// The pixels of a JPEG, PNG, WebP, PGM or PPM, by default RGB and upright. `hint` may leave out what a
/// loader will not look at; see make_dataset(). Throws IoError, naming the file, if it cannot be read or is
/// damaged.
Image read_image(const std::filesystem::path& path, const DecodeOptions& options = {},
                 const DecodeHintFunction& hint = {});

/// The mask in a PNG, gray or with a palette, or in a PGM: a class for every pixel, the number that is
/// stored. (read_image() gives a palette's colours, and stretches gray of fewer than 8 bits.) Throws IoError,
/// naming the file, for others, and as read_image() does.
Image read_mask(const std::filesystem::path& path);

/// The names of the files in a folder, but hidden ones, in the order of their bytes. Throws IoError if it
/// cannot be read.
std::vector<std::string> list_files(const std::filesystem::path& folder);

}  // namespace sinter::nn::data
