// An uncompressed 8-bit image in memory, and the pixel operations that need no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace sinter::nn::data {

/// Pixels in rows from the top, each from the left, channels innermost (HWC); one byte per value.
/// `pixels.size() == height * width * channels`. Buffers are kept when an image is reused for another.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;

  /// Sets the size and makes room for the pixels, whose values are then undefined. Throws InvalidArgument
  /// unless all extents are >= 0 and their product fits.
  void reshape(int64_t new_height, int64_t new_width, int64_t new_channels);

  /// True if the size is positive and there are pixels for all of it: what readers and transforms of others
  /// must leave, and is checked before anything reads by the size.
  bool is_whole() const;

  uint8_t* row(int64_t y) { return pixels.data() + static_cast<size_t>(y * width * channels); }
  const uint8_t* row(int64_t y) const { return pixels.data() + static_cast<size_t>(y * width * channels); }
};

/// Whole pixels of an image: rows [top, bottom), columns [left, right).
struct PixelWindow {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};

/// What a decoder may leave out of an image.
struct DecodeHint {
  DecodeHint(int divisor) : by(divisor) {}  // all of it, smaller

  int by;  ///< 1, 2, 4 or 8: both sides may be divided by it, rounded up
  /// What will be looked at of the image of that size, which keeps its size; pixels outside may be left
  /// undefined.
  std::optional<PixelWindow> window;
  /// The same file was decoded to its end before, so that damage behind the window need not be looked for.
  bool is_sound = false;
};

/// What a decoder may leave out, given the size of a stored image: transforms that shrink or crop it anyway
/// say so, since a part of a JPEG decodes faster. Empty: nothing.
using DecodeHintFunction = std::function<DecodeHint(int64_t height, int64_t width)>;

/// Copies the window of `height` x `width` pixels at (top, left) into `out`; it must lie inside the image,
/// else InvalidArgument. `out` must be another image.
void crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, Image& out);

/// Mirrors the image left to right in place.
void flip_horizontal(Image& image);

/// Turns the image upright, given its EXIF orientation: 1 is upright, 2 mirrored, 3 upside down, 4 mirrored
/// top to bottom, 5 transposed, 6 to be turned 90 degrees clockwise, 7 transverse, 8 to be turned 90 degrees
/// anticlockwise. Throws InvalidArgument for any other number.
void orient(Image& image, int orientation);

/// Converts between gray (1 channel) and RGB (3) in place: copies gray, or takes luma 0.299 R + 0.587 G +
/// 0.114 B (ITU-R BT.601, as JPEG does). Throws InvalidArgument for other numbers of channels.
void convert_channels(Image& image, int64_t channels);

/// Takes the alpha, the last of two or four channels, out: lays the image over white.
void lay_over_white(Image& image);

}  // namespace sinter::nn::data
