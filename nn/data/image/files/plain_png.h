// The quick way through a PNG that is a mask.
#pragma once

#include <cstdint>
#include <span>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

/// Decodes, with `stored_values`, a PNG that is gray or has a palette, of at most 8 bits a pixel and not
/// interlaced. It must have nothing but its header, the palette, pixels and the end. False: it is of another
/// kind or for other options, or something is wrong with it, which libpng finds and names; `image` is then
/// undefined.
bool decode_plain_png(std::span<const uint8_t> png, const DecodeOptions& options, Image& image);

}  // namespace sinter::nn::data
