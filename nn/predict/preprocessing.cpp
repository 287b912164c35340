#include <sinter/core/base/error.h>
#include <sinter/nn/predict/preprocessing.h>

namespace sinter::nn {

data::ResizeFilter resize_filter(const ModelMetadata& metadata) {
  const bool bicubic = metadata.interpolation == "bicubic";
  SINTER_CHECK(bicubic || metadata.interpolation == "bilinear",
               "[resize_filter] expected the interpolation \"bilinear\" or \"bicubic\" but got \"{}\"",
               metadata.interpolation);
  return bicubic ? data::ResizeFilter::kBicubic : data::ResizeFilter::kBilinear;
}

data::Transforms test_transforms(const ModelMetadata& metadata) {
  const int64_t height = metadata.height, width = metadata.width;
  SINTER_CHECK(height > 0 && width > 0, "[test_transforms] expected a size of inputs but got {} x {}", height,
               width);
  if (metadata.resize == "none") return {};
  if (metadata.resize == "exact") return {data::resize(Size2d(height, width), resize_filter(metadata))};
  SINTER_CHECK(
      metadata.resize == "shorter_side" && height == width,
      "[test_transforms] expected to resize by \"none\", \"exact\", or \"shorter_side\" to a square, "
      "but got \"{}\" to {} x {}",
      metadata.resize, height, width);
  return {data::resize_center_crop(metadata.resize_size, height, resize_filter(metadata))};
}

data::Transforms crop_transforms(const ModelMetadata& metadata) {
  SINTER_CHECK(
      metadata.resize == "shorter_side" && metadata.resize_size > metadata.height,
      "[crop_transforms] expected a model whose pictures are resized to more than its inputs (resize "
      "\"shorter_side\") but got resize \"{}\" to {} for inputs of {} x {}: there is one crop of a picture",
      metadata.resize, metadata.resize_size, metadata.height, metadata.width);
  return {data::resize_center_crop(metadata.resize_size, metadata.resize_size, resize_filter(metadata))};
}

data::Normalization normalization_of(const ModelMetadata& metadata) {
  const auto channels = static_cast<size_t>(metadata.channels);
  SINTER_CHECK(metadata.mean.size() == channels && metadata.std.size() == channels,
               "[normalization_of] expected a mean and a deviation for each of {} channels but got {} and {}",
               channels, metadata.mean.size(), metadata.std.size());
  return {.mean = metadata.mean, .std = metadata.std};
}

}  // namespace sinter::nn
