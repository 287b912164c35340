// Image files of any format: told by their names in folders, and by their first bytes when they are read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

/// The endings of names by which folders and archives are searched for images, for messages.
inline constexpr const char* kImageEndings = ".jpg, .jpeg, .png, .webp, .pgm or .ppm";

/// Text with A to Z in lower case and all else as it is, whatever the locale.
std::string ascii_lower(std::string_view text);

/// Counts by kind in one line, the largest first: "9 .gif, 7 .bmp, ..." with at most five.
std::string describe_counts(const std::map<std::string, uint64_t>& counts);

/// What stands behind the last dot of a name, in lower case; empty if there is none, or nothing before it.
std::string ending_of(std::string_view name);

/// Whether a file of this ending, without its dot and in lower case, is taken for an image.
bool is_image_ending(std::string_view ending);

/// Decodes a JPEG, PNG, WebP, PGM or PPM, told apart by content, as decode_jpeg, decode_png, decode_webp and
/// decode_netpbm do. Throws IoError for others.
void decode_image(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                  const DecodeHintFunction& reduction, Image& image);

}  // namespace sinter::nn::data
