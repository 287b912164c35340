// JPEG to pixels, for files that nobody vouches for (libjpeg-turbo does the decoding).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {

struct DecodeOptions {
  int channels = 3;                 ///< 3 for RGB, 1 for gray; the file's own colours are converted
  bool apply_orientation = true;    ///< turn photographs upright as their EXIF data says
  int64_t max_pixels = 64'000'000;  ///< refuse larger images
  /// For masks: the numbers as they are stored, of gray and palette PNGs of up to 8 bits, without their
  /// colours, and of PGMs, in 1 channel. decode_image() refuses other files.
  bool stored_values = false;
  int max_scans = 100;  ///< refuse progressive files with more scans, which cost time out of proportion
};

/// True if the bytes start as a JPEG does.
bool is_jpeg(std::span<const uint8_t> bytes);

/// Decodes baseline and progressive files in gray, YCbCr, RGB, CMYK or YCCK into `image`, reusing its buffer.
/// `reduction`, asked with the upright image's size, may choose to decode at 1/2, 1/4 or 1/8 of it (rounded
/// up) straight from the DCT coefficients. A window is used of files in one scan that are stored upright: its
/// pixels are the same as without. `name` is the file's, for messages. Throws IoError if the file is
/// damaged, which includes whatever libjpeg only warns of the pixels (half a file decodes "successfully", in
/// gray), or beyond the limits; InvalidArgument for wrong options. What libjpeg finds odd in metadata is no
/// damage: a version of JFIF or an Adobe transform that it does not know, bytes left over between the markers
/// before the first scan, a scan's spectral selection in a sequential file.
void decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                 const DecodeHintFunction& reduction, Image& image);

}  // namespace sinter::nn::data
