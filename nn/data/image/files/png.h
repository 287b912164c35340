// PNG to pixels, for files that nobody vouches for (libpng does the decoding).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

/// True if the bytes start as a PNG does.
bool is_png(std::span<const uint8_t> bytes);

/// Decodes gray, palette and RGB files of 1 to 16 bits a value, interlaced or not, into `image`, reusing its
/// buffer. 16 bits are rounded to 8. Transparent pixels are laid over white, in the stored values. Nothing
/// else in the file judges its pixels: colour profiles, gamma and texts are passed over, damaged or not, and
/// so is what is left over behind the last pixel. An EXIF orientation counts as in a JPEG, if it is sound.
/// `name` is the file's, for messages. Throws IoError if pixels are damaged or missing, which includes
/// whatever libpng only warns of them, or beyond options.max_pixels; InvalidArgument for wrong options.
void decode_png(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                Image& image);

}  // namespace sinter::nn::data
