// The geometry of resampling, for every device.
#pragma once

#include <cmath>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/resize_images/resize_images.h>

namespace sinter::ops {

/// The longest side of an image, so that positions have 32 bits.
inline constexpr int64_t kMaxImageSide = int64_t{1} << 30;

/// The inputs [first, last) that one output position averages; `offset` is the distance from the position's
/// centre to that of the first.
struct ResampleTaps {
  int32_t first = 0, last = 0;
  float offset = 0;
};

/// One axis of a box: where each of its outputs looks. Positions are kept in double, distances to neighbours
/// in float.
class ResampleAxis {
 public:
  ResampleAxis() = default;
  /// The part [begin, begin + extent), cut down to [0, inputs], inputs in [1, kMaxImageSide]; not-a-number
  /// counts as 0.
  SINTER_HOST_DEVICE ResampleAxis(int64_t inputs, double begin, double extent, int64_t outputs,
                                  ResizeFilter filter)
      : inputs_(static_cast<int32_t>(inputs)), cubic_(filter == ResizeFilter::kBicubic) {
    const auto most = static_cast<double>(inputs);
    start_ = fmin(fmax(begin, 0.0), most);
    const double end = fmin(fmax(begin + extent, start_), most);
    step_ = (end - start_) / static_cast<double>(outputs);
    const double scale = fmax(step_, 1.0);
    radius_ = cubic_ ? 2 * scale : scale;
    inverse_scale_ = static_cast<float>(1.0 / scale);
  }

  /// At least one input, all of them inside the axis.
  SINTER_HOST_DEVICE ResampleTaps taps(int64_t output) const {
    const double centre = start_ + (static_cast<double>(output) + 0.5) * step_;
    // Inputs whose centres (k + 1/2) are nearer than the radius. The radius is at least 1 and the centre in
    // [0, inputs], so the nearest one always is.
    const auto low = static_cast<int32_t>(floor(centre - radius_ + 0.5));
    const auto high = static_cast<int32_t>(floor(centre + radius_ + 0.5));
    const int32_t first = low < 0 ? 0 : low >= inputs_ ? inputs_ - 1 : low;
    const int32_t last = high > inputs_ ? inputs_ : high <= first ? first + 1 : high;
    return {first, last, static_cast<float>(static_cast<double>(first) + 0.5 - centre)};
  }
  /// Not normalised; at most 1.
  SINTER_HOST_DEVICE float weight(const ResampleTaps& taps, int32_t input) const {
    const float distance = fabsf(taps.offset + static_cast<float>(input - taps.first)) * inverse_scale_;
    return cubic_ ? cubic_weight(distance) : fmaxf(0.0f, 1.0f - distance);
  }
  /// Whether means may leave the range of the inputs.
  SINTER_HOST_DEVICE bool overshoots() const { return cubic_; }
  SINTER_HOST_DEVICE float total_weight(const ResampleTaps& taps) const {
    float total = 0;
    for (int32_t k = taps.first; k < taps.last; ++k) total += weight(taps, k);
    return total;
  }

 private:
  /// Source: R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
  SINTER_HOST_DEVICE static float cubic_weight(float distance) {
    if (distance < 1.0f) return (1.5f * distance - 2.5f) * distance * distance + 1.0f;
    if (distance < 2.0f) return ((-0.5f * distance + 2.5f) * distance - 4.0f) * distance + 2.0f;
    return 0.0f;
  }

  int32_t inputs_ = 1;
  double start_ = 0, step_ = 1, radius_ = 1;
  float inverse_scale_ = 1;
  bool cubic_ = false;
};

/// One image of the batch, checked against the pixels there are.
struct ResampleImage {
  const uint8_t* pixels = nullptr;  ///< null: it does not lie in the buffer
  int64_t row_bytes = 0;
  ResampleAxis rows, columns;
  bool mirrored = false;
};

/// A mean that the filter let leave the range of pixels, cut back to it.
SINTER_HOST_DEVICE inline float cut_to_pixels(float value) {
  return fminf(fmaxf(value, 0.0f), 255.0f);
}

/// `extent`: offset, height, width. `box`: top, left, height, width, mirrored.
SINTER_HOST_DEVICE inline ResampleImage resample_image(const uint8_t* pixels, int64_t bytes, int64_t channels,
                                                       const int64_t* extent, const double* box,
                                                       int64_t out_height, int64_t out_width,
                                                       ResizeFilter filter) {
  ResampleImage image;
  const int64_t offset = extent[0], height = extent[1], width = extent[2];
  // Divisions, as products may overflow.
  const bool inside = offset >= 0 && height > 0 && width > 0 && height <= kMaxImageSide &&
                      width <= kMaxImageSide && offset <= bytes && width <= bytes / channels &&
                      height <= (bytes - offset) / (width * channels);
  if (!inside) return image;
  image.pixels = pixels + offset;
  image.row_bytes = width * channels;
  image.rows = ResampleAxis(height, box[0], box[2], out_height, filter);
  image.columns = ResampleAxis(width, box[1], box[3], out_width, filter);
  image.mirrored = box[4] != 0.0;
  return image;
}

}  // namespace sinter::ops
