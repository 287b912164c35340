// What the samples of crop_images and resize_images share.
#pragma once

#include <algorithm>

#include <sinter/ops/common/image_output.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {

/// Random pixels, uint8.
inline Tensor random_bytes(SampleMaker& maker, const Shape& shape) {
  const Tensor bytes = Tensor::empty(shape, DType::kUInt8);
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    bytes.data<uint8_t>()[i] = static_cast<uint8_t>(maker.integer(0, 255));
  }
  return bytes;
}

inline ImageOutput random_output(SampleMaker& maker, int64_t channels) {
  const Shape size = maker.shape(2, 17);
  ImageOutput output{.height = size[0],
                     .width = size[1],
                     .dtype = maker.dtype(),
                     .layout = maker.pick({Layout::kNCHW, Layout::kNHWC})};
  const auto count = [&] { return static_cast<size_t>(maker.chance(0.5) ? 1 : channels); };
  output.mean.resize(count());
  output.std.resize(count());
  for (float& mean : output.mean) mean = static_cast<float>(maker.uniform(0.0, 1.0));
  for (float& std : output.std) std = static_cast<float>(maker.uniform(0.2, 1.0));
  return output;
}

inline Shape output_shape(const ImageOutput& output, int64_t images, int64_t channels) {
  if (output.layout == Layout::kNCHW) return {images, channels, output.height, output.width};
  return {images, output.height, output.width, channels};
}

inline int64_t output_index(const ImageOutput& output, int64_t channels, int64_t n, int64_t y, int64_t x,
                            int64_t c) {
  if (output.layout == Layout::kNCHW) {
    return ((n * channels + c) * output.height + y) * output.width + x;
  }
  return ((n * output.height + y) * output.width + x) * channels + c;
}

inline double normalized(const ImageOutput& output, int64_t c, double value) {
  const auto of_channel = [c](const std::vector<float>& values) {
    return static_cast<double>(values[values.size() == 1 ? 0 : static_cast<size_t>(c)]);
  };
  return (value / 255.0 - of_channel(output.mean)) / of_channel(output.std);
}

/// The same for a value that is a whole number, if the batch may hold bytes.
inline double shown_value(const ImageOutput& output, int64_t c, double value) {
  return output.dtype == DType::kUInt8 ? value : normalized(output, c, value);
}

/// For OpSamples::term_size: a pixel and a mean of up to 1 each, over the deviation.
template <class Attributes>
double image_terms(const OpSample& sample, size_t) {
  double largest = 0.0;
  for (const float std : sample.attributes.as<Attributes>().output.std)
    largest = std::max(largest, 1.0 / std);
  return largest;
}

}  // namespace sinter::ops
