// WebP to pixels, for files that nobody vouches for (libwebp does the decoding).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

/// True if the bytes start as a WebP does.
bool is_webp(std::span<const uint8_t> bytes);

/// Decodes lossy and lossless files into `image`, reusing its buffer. Transparent pixels are laid over white;
/// profiles are passed over, and an EXIF orientation counts as in a JPEG. `name` is the file's, for messages.
/// Throws IoError if the file is damaged, animated, or beyond options.max_pixels, OutOfMemory if libwebp has
/// no memory, and InvalidArgument for wrong options.
void decode_webp(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                 Image& image);

}  // namespace sinter::nn::data
