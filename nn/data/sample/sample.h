// What a data set gives: a picture, its class, and whatever else belongs to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

/// What a mask holds where it shows no part of the picture: `CrossEntropyLoss{.ignore_index = kMaskIgnore}`.
inline constexpr int64_t kMaskIgnore = 255;

/// An object in a picture: a rectangle in pixels, whose edges may lie between them, and a class.
struct ObjectBox {
  double top = 0, left = 0, height = 0, width = 0;
  int64_t label = 0;
  bool operator==(const ObjectBox&) const = default;
};

/// Whatever a sample does not have stays empty, as reset() leaves it.
struct Sample {
  Image image = {};   ///< 8-bit pixels
  int64_t label = 0;  ///< a class, in [0, classes) where the data set names its classes
  Image mask = {};    ///< a class for every pixel, 1 channel of the image's size; moves with the image
  std::vector<ObjectBox> boxes = {};          ///< move with the image, and are cut to it
  std::map<std::string, Tensor> values = {};  ///< anything else, on the CPU: stacked by name into batches

  /// Whether there are pixels, or something in their place.
  bool is_empty() const { return image.height == 0 && mask.height == 0 && values.empty(); }
  /// Empties it and keeps its buffers.
  void reset();
};

/// A sample whose image is a file's bytes still, for decoders of a device.
struct EncodedSample {
  std::vector<uint8_t> bytes;
  DecodeOptions decode;  ///< as read() decodes it
  int64_t label = 0;
};

namespace detail {

/// A sample whose pixels lie in memory already, in the order of Image; valid as long as what it was asked of.
struct SampleView {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  const uint8_t* pixels = nullptr;
  int64_t label = 0;
  const Sample* rest = nullptr;  ///< has its mask, boxes and values, if there are any
};

}  // namespace detail

inline void Sample::reset() {
  for (Image* const part : {&image, &mask}) part->height = part->width = part->channels = 0;
  label = 0;
  boxes.clear();
  values.clear();
}

}  // namespace sinter::nn::data
