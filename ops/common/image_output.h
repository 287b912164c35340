// What crop_images and resize_images have in common: the batch of normalised floats that they write.
#pragma once

#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include <sinter/core/base/host_device.h>
#include <sinter/core/op/op_def.h>

namespace sinter::ops {

/// y = (x / 255 - mean[c]) / std[c] for 8-bit values x, in images of `height` x `width`. One mean and one
/// std serve all channels, or there is one for each. A batch of uint8 holds x itself, rounded to nearest;
/// mean and std are then not used.
struct ImageOutput {
  int64_t height = 0;
  int64_t width = 0;
  DType dtype = DType::kFloat32;  ///< float32, float16, bfloat16 or uint8
  Layout layout = Layout::kNCHW;  ///< (N, C, height, width) or (N, height, width, C)
  std::vector<float> mean = {0.0f};
  std::vector<float> std = {1.0f};

  bool operator==(const ImageOutput&) const = default;
  template <class Self = ImageOutput>
  static constexpr auto fields() {
    return std::tuple(field("height", &Self::height), field("width", &Self::width),
                      field("dtype", &Self::dtype), field("layout", &Self::layout),
                      field("mean", &Self::mean), field("std", &Self::std));
  }
};

/// The most channels of an image: the scales of all travel with a launch.
inline constexpr int64_t kMaxImageChannels = 128;

/// The normalisation as y = x * scale[c] + shift[c], small enough to be passed by value.
struct ChannelScales {
  float scale[kMaxImageChannels];
  float shift[kMaxImageChannels];
};

inline ChannelScales channel_scales(const ImageOutput& output, int64_t channels) {
  ChannelScales scales{};
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<size_t>(c);
    const float mean = output.mean[output.mean.size() == 1 ? 0 : at];
    const float std = output.std[output.std.size() == 1 ? 0 : at];
    if (output.dtype == DType::kUInt8) {
      scales.scale[at] = 1.0f;
      continue;
    }
    scales.scale[at] = 1.0f / (255.0f * std);
    scales.shift[at] = -mean / std;
  }
  return scales;
}

/// A value as an 8-bit one, rounded to nearest.
SINTER_HOST_DEVICE inline uint8_t nearest_byte(float value) {
  return value < 255.0f ? static_cast<uint8_t>(value > 0.0f ? value + 0.5f : 0.0f) : uint8_t{255};
}

/// A value as an element of the batch, on the host.
template <class T>
T image_value(float value) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return nearest_byte(value);
  } else {
    return static_cast<T>(value);
  }
}

/// The spec of the batch; throws InvalidArgument unless the options fit `channels`.
inline TensorSpec infer_image_output(const ImageOutput& output, int64_t images, int64_t channels,
                                     Device device, const char* tag) {
  SINTER_CHECK(output.height >= 0 && output.width >= 0, "[{}] expected a size >= 0 but got {} x {}", tag,
               output.height, output.width);
  SINTER_CHECK((is_float(output.dtype) && output.dtype != DType::kFloat64) || output.dtype == DType::kUInt8,
               "[{}] expected float32, float16, bfloat16 or uint8 but got {}", tag, output.dtype);
  SINTER_CHECK(channels <= kMaxImageChannels, "[{}] expected at most {} channels but got {}", tag,
               kMaxImageChannels, channels);
  const auto count = static_cast<size_t>(channels);
  SINTER_CHECK(output.mean.size() == 1 || output.mean.size() == count,
               "[{}] expected 1 or {} means but got {}", tag, channels, output.mean.size());
  SINTER_CHECK(output.std.size() == 1 || output.std.size() == count,
               "[{}] expected 1 or {} deviations but got {}", tag, channels, output.std.size());
  for (const float mean : output.mean)
    SINTER_CHECK(std::isfinite(mean), "[{}] expected a finite mean but got {}", tag, mean);
  for (const float std : output.std)
    SINTER_CHECK(std::isfinite(std) && std > 0, "[{}] expected a deviation > 0 but got {}", tag, std);
  return {output.layout == Layout::kNCHW ? Shape{images, channels, output.height, output.width}
                                         : Shape{images, output.height, output.width, channels},
          output.dtype, device};
}

/// Calls `function.operator()<T>()` with the type of the batch's elements.
template <class F>
decltype(auto) dispatch_image_output(DType dtype, F&& function) {
  if (dtype == DType::kFloat16) return function.template operator()<float16>();
  if (dtype == DType::kBFloat16) return function.template operator()<bfloat16>();
  if (dtype == DType::kUInt8) return function.template operator()<uint8_t>();
  return function.template operator()<float>();
}

}  // namespace sinter::ops
