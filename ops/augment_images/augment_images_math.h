// The arithmetic of augmentation, in whole numbers, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/crop_images/crop_images_math.h>

namespace sinter::ops {

inline constexpr int kByteValues = 256;
inline constexpr int64_t kBlurRadius = kStepFields - 2;

SINTER_HOST_DEVICE inline uint8_t to_byte(int64_t value) {
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

/// value * factor + other * (1 - factor).
SINTER_HOST_DEVICE inline uint8_t blend(int64_t value, int64_t other, int64_t factor) {
  return to_byte((value * factor + other * (kStepOne - factor)) >> 16);
}

SINTER_HOST_DEVICE inline int64_t grey_of(const uint8_t* rgb) {
  return (19595 * int64_t{rgb[0]} + 38470 * int64_t{rgb[1]} + 7471 * int64_t{rgb[2]} + 32768) >> 16;
}

/// Whether the step maps each channel's values one by one, so that a table of 256 values says it.
SINTER_HOST_DEVICE inline bool has_table(ImageStep step) {
  switch (step) {
    case ImageStep::kAffine:
    case ImageStep::kSaturation:
    case ImageStep::kHue:
    case ImageStep::kSharpness:
    case ImageStep::kBlurX:
    case ImageStep::kBlurY:
      return false;
    default:
      return true;
  }
}

SINTER_HOST_DEVICE inline bool needs_histogram(ImageStep step) {
  return step == ImageStep::kAutocontrast || step == ImageStep::kEqualize;
}

/// What a table depends on besides the step.
struct ImageStatistics {
  int64_t grey_mean = 0;  ///< in 1/65536
};
struct ChannelStatistics {
  int32_t least = 0, largest = 0;  ///< values that occur
  int64_t step = 0;                ///< of equalize: pixels for each level of the result
};

/// Pixels of a channel for each level after equalize; 0: it stays. `last`: those with the largest value.
SINTER_HOST_DEVICE inline int64_t equalize_step(int64_t pixels, int64_t last) {
  return (pixels - last) / 255;
}

/// What `value` becomes; `below`: how many of the channel's pixels are less.
SINTER_HOST_DEVICE inline uint8_t table_value(ImageStep step, int64_t p0, int value,
                                              const ImageStatistics& image, const ChannelStatistics& channel,
                                              int64_t below) {
  switch (step) {
    case ImageStep::kBrightness:
      return to_byte((value * p0) >> 16);
    case ImageStep::kContrast:
      return to_byte((value * p0 * kStepOne + image.grey_mean * (kStepOne - p0)) >> 32);
    case ImageStep::kPosterize: {
      const int bits = p0 < 0 ? 0 : p0 > 8 ? 8 : static_cast<int>(p0);
      return static_cast<uint8_t>(value & (0xff00 >> bits));
    }
    case ImageStep::kSolarize:
      return static_cast<uint8_t>(value >= p0 ? 255 - value : value);
    case ImageStep::kSolarizeAdd:
      return value < 128 ? to_byte(value + p0) : static_cast<uint8_t>(value);
    case ImageStep::kAutocontrast: {
      const int range = channel.largest - channel.least;
      return range <= 0 ? static_cast<uint8_t>(value) : to_byte((value - channel.least) * 255 / range);
    }
    case ImageStep::kEqualize:
      return channel.step == 0 ? static_cast<uint8_t>(value)
                               : to_byte((below + channel.step / 2) / channel.step);
    default:
      return static_cast<uint8_t>(value);
  }
}

/// The colour (r, g, b) with its hue turned by `turn` / 65536. With f the part of a sixth of the circle that
/// the hue has gone, one channel is the largest, one the least, and the third in between by f or 1 - f. f is
/// kept as a fraction of d = largest - least, so that nothing is rounded before the end. Source: A. R. Smith,
/// "Color gamut transform pairs", SIGGRAPH 1978.
SINTER_HOST_DEVICE inline void turn_hue(const uint8_t* rgb, int64_t turn, uint8_t* to) {
  const int64_t r = rgb[0], g = rgb[1], b = rgb[2];
  const int64_t least = r < g ? (r < b ? r : b) : (g < b ? g : b);
  const int64_t largest = r > g ? (r > b ? r : b) : (g > b ? g : b);
  const int64_t d = largest - least, sixth = d << 16;
  if (d == 0) {
    for (int c = 0; c < 3; ++c) to[c] = rgb[c];
    return;
  }
  const int64_t own = largest == r ? g - b : largest == g ? b - r + 2 * d : r - g + 4 * d;
  int64_t place = (own * kStepOne + 6 * d * (turn % kStepOne)) % (6 * sixth);
  if (place < 0) place += 6 * sixth;
  const int64_t sector = place / sixth, gone = place % sixth;
  const auto high = static_cast<uint8_t>(largest), low = static_cast<uint8_t>(least);
  const auto rising = static_cast<uint8_t>(least + ((gone + 32768) >> 16));
  const auto falling = static_cast<uint8_t>(least + ((sixth - gone + 32768) >> 16));
  to[0] = sector == 0 || sector == 5 ? high : sector == 1 ? falling : sector == 4 ? rising : low;
  to[1] = sector == 1 || sector == 2 ? high : sector == 3 ? falling : sector == 0 ? rising : low;
  to[2] = sector == 3 || sector == 4 ? high : sector == 5 ? falling : sector == 2 ? rising : low;
}

/// One image's pixels, (H, W, C).
struct ImageView {
  const uint8_t* bytes;
  int32_t height, width, channels;

  SINTER_HOST_DEVICE const uint8_t* pixel(int64_t y, int64_t x) const {
    return bytes + (y * width + x) * channels;
  }
};

/// The pixel that kAffine shows at (y, x); null: none.
SINTER_HOST_DEVICE inline const uint8_t* affine_source(const ImageView& image, const int32_t* p, int64_t y,
                                                       int64_t x) {
  // Twice the centre's place is a whole number.
  const int64_t x2 = 2 * x + 1, y2 = 2 * y + 1;
  const int64_t from_x = (p[0] * x2 + p[1] * y2 + 2 * int64_t{p[2]}) >> 17;
  const int64_t from_y = (p[3] * x2 + p[4] * y2 + 2 * int64_t{p[5]}) >> 17;
  if (from_x < 0 || from_x >= image.width || from_y < 0 || from_y >= image.height) return nullptr;
  return image.pixel(from_y, from_x);
}

SINTER_HOST_DEVICE inline uint8_t sharpened(const ImageView& image, int64_t factor, int64_t y, int64_t x,
                                            int c) {
  const uint8_t* middle = image.pixel(y, x) + c;
  if (y == 0 || x == 0 || y == image.height - 1 || x == image.width - 1) return *middle;
  const int64_t row = int64_t{image.width} * image.channels;
  int sum = 4 * *middle;
  for (int64_t dy = -row; dy <= row; dy += row) {
    for (int64_t dx = -image.channels; dx <= image.channels; dx += image.channels) sum += middle[dy + dx];
  }
  return blend(*middle, (2 * sum + 13) / 26, factor);
}

/// `along_x`: over the pixels of a row, else those of a column.
SINTER_HOST_DEVICE inline uint8_t blurred(const ImageView& image, const int32_t* p, bool along_x, int64_t y,
                                          int64_t x, int c) {
  const auto at = [&](int64_t distance) {
    const int64_t from_x = along_x ? border_source(x + distance, image.width, PadMode::kReflect) : x;
    const int64_t from_y = along_x ? y : border_source(y + distance, image.height, PadMode::kReflect);
    return int64_t{image.pixel(from_y, from_x)[c]};
  };
  int64_t sum = p[0] * at(0);
  for (int64_t k = 1; k <= kBlurRadius; ++k) {
    if (p[k] != 0) sum += p[k] * (at(-k) + at(k));
  }
  return to_byte((sum + kStepOne / 2) >> 16);
}

/// A pixel of the result of a step that has no table. `p`: the step's parameters.
SINTER_HOST_DEVICE inline void augment_pixel(const ImageView& image, ImageStep step, const int32_t* p,
                                             int64_t y, int64_t x, uint8_t* to) {
  const uint8_t* own = image.pixel(y, x);
  if (step == ImageStep::kAffine) {
    const uint8_t* from = affine_source(image, p, y, x);
    for (int c = 0; c < image.channels; ++c) to[c] = from == nullptr ? uint8_t{0} : from[c];
  } else if (step == ImageStep::kSharpness) {
    for (int c = 0; c < image.channels; ++c) to[c] = sharpened(image, p[0], y, x, c);
  } else if (step == ImageStep::kBlurX || step == ImageStep::kBlurY) {
    for (int c = 0; c < image.channels; ++c) to[c] = blurred(image, p, step == ImageStep::kBlurX, y, x, c);
  } else if (image.channels == 3 && step == ImageStep::kSaturation) {
    const int64_t grey = grey_of(own);
    for (int c = 0; c < 3; ++c) to[c] = blend(own[c], grey, p[0]);
  } else if (image.channels == 3 && step == ImageStep::kHue) {
    turn_hue(own, p[0], to);
  } else {
    for (int c = 0; c < image.channels; ++c) to[c] = own[c];
  }
}

}  // namespace sinter::ops
