// How a picture becomes an input, as ModelMetadata says: what trainers test with, and predictions go by.
#pragma once

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/data/transforms.h>

namespace sinter::nn {

/// How pictures are resampled: `metadata.interpolation`. Throws InvalidArgument for another than "bilinear"
/// and "bicubic".
data::ResizeFilter resize_filter(const ModelMetadata& metadata);

/// What resizes pictures to inputs of the model: by `metadata.resize`. Nothing under "none": they have that
/// size. Throws InvalidArgument for sizes or a `resize` that are none.
data::Transforms test_transforms(const ModelMetadata& metadata);

/// For several crops of a picture: as far as its middle, of `resize_size` x `resize_size`. Throws
/// InvalidArgument unless `resize` is "shorter_side", and to more than an input's size.
data::Transforms crop_transforms(const ModelMetadata& metadata);

/// Mean and deviation of the model's inputs. Throws InvalidArgument unless there is one for each channel.
data::Normalization normalization_of(const ModelMetadata& metadata);

}  // namespace sinter::nn
