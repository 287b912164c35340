#include <algorithm>
#include <cstring>
#include <optional>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {
namespace {

/// None if an extent is negative or the product beyond 64 bits.
std::optional<uint64_t> bytes_of(int64_t height, int64_t width, int64_t channels) {
  int64_t bytes = 0;
  const bool fits = height >= 0 && width >= 0 && channels >= 0 &&
                    !__builtin_mul_overflow(height, width, &bytes) &&
                    !__builtin_mul_overflow(bytes, channels, &bytes);
  return fits ? std::optional(static_cast<uint64_t>(bytes)) : std::nullopt;
}

// Orientations 5 to 8 are a transposition before, as 1 to 4 are without one.
bool is_transposed(int orientation) {
  return orientation >= 5;
}
bool starts_at_right(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}
bool starts_at_bottom(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

}  // namespace

void Image::reshape(int64_t new_height, int64_t new_width, int64_t new_channels) {
  const std::optional<uint64_t> bytes = bytes_of(new_height, new_width, new_channels);
  SINTER_CHECK(bytes.has_value(), "[image] expected a size >= 0 that fits in memory but got {} x {} x {}",
               new_height, new_width, new_channels);
  pixels.resize(*bytes);
  height = new_height;
  width = new_width;
  channels = new_channels;
}

bool Image::is_whole() const {
  const std::optional<uint64_t> bytes = bytes_of(height, width, channels);
  return bytes && *bytes > 0 && *bytes <= pixels.size();
}

void crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, Image& out) {
  SINTER_CHECK(top >= 0 && left >= 0 && height >= 0 && width >= 0 && height <= image.height - top &&
                   width <= image.width - left,
               "[image] expected a window inside the {} x {} image but got {} x {} at ({}, {})", image.height,
               image.width, height, width, top, left);
  out.reshape(height, width, image.channels);
  const auto bytes = static_cast<size_t>(width * image.channels);
  for (int64_t y = 0; y < height; ++y) {
    std::memcpy(out.row(y), image.row(top + y) + left * image.channels, bytes);
  }
}

void flip_horizontal(Image& image) {
  const int64_t channels = image.channels;
  for (int64_t y = 0; y < image.height; ++y) {
    uint8_t* left = image.row(y);
    uint8_t* right = left + (image.width - 1) * channels;
    for (; left < right; left += channels, right -= channels) std::swap_ranges(left, left + channels, right);
  }
}

void orient(Image& image, int orientation) {
  SINTER_CHECK(orientation >= 1 && orientation <= 8,
               "[image] expected an EXIF orientation from 1 to 8 but got {}", orientation);
  if (orientation == 1) return;
  const bool transposed = is_transposed(orientation);
  Image out;
  out.reshape(transposed ? image.width : image.height, transposed ? image.height : image.width,
              image.channels);
  for (int64_t y = 0; y < out.height; ++y) {
    uint8_t* to = out.row(y);
    for (int64_t x = 0; x < out.width; ++x, to += image.channels) {
      int64_t from_y = transposed ? x : y;
      int64_t from_x = transposed ? y : x;
      if (starts_at_bottom(orientation)) from_y = image.height - 1 - from_y;
      if (starts_at_right(orientation)) from_x = image.width - 1 - from_x;
      std::memcpy(to, image.row(from_y) + from_x * image.channels, static_cast<size_t>(image.channels));
    }
  }
  image = std::move(out);
}

void convert_channels(Image& image, int64_t channels) {
  if (image.channels == channels) return;
  SINTER_CHECK((image.channels == 1 && channels == 3) || (image.channels == 3 && channels == 1),
               "[image] expected a conversion between 1 and 3 channels but got {} to {}", image.channels,
               channels);
  const auto count = static_cast<size_t>(image.height * image.width);
  if (channels == 3) {
    image.reshape(image.height, image.width, 3);
    for (size_t i = count; i-- > 0;) {  // from the back, since the result overlaps its source
      const uint8_t value = image.pixels[i];
      std::memset(&image.pixels[3 * i], value, 3);
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* rgb = &image.pixels[3 * i];
    // Weights in 16-bit fixed point; they sum to 65536, so white stays white.
    image.pixels[i] =
        static_cast<uint8_t>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
  }
  image.reshape(image.height, image.width, 1);
}

void lay_over_white(Image& image) {
  const int64_t channels = image.channels - 1;
  const size_t count = image.pixels.size() / static_cast<size_t>(image.channels);
  const uint8_t* from = image.pixels.data();
  uint8_t* to = image.pixels.data();
  for (size_t i = 0; i < count; ++i, from += channels + 1, to += channels) {
    const int alpha = from[channels];
    for (int64_t c = 0; c < channels; ++c)
      to[c] = static_cast<uint8_t>((from[c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
  image.reshape(image.height, image.width, channels);
}

}  // namespace sinter::nn::data
