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
/// buffer. 16 bits are rounded to 8. Transparent pixels are laid over white, in the stored values. Colour
/// profiles, gamma and texts are passed over; an EXIF orientation counts as in a JPEG. `name` is the file's,
/// for messages. Throws IoError if the file is damaged, which includes whatever libpng only warns of, or
/// beyond options.max_pixels; InvalidArgument for wrong options.
void decode_png(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                Image& image);

}  // namespace sinter::nn::data
