// Pixels to PNG (libpng does the encoding).
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {

/// Encodes an image of 1 (gray) or 3 (RGB) channels, without loss, into `bytes`, in place of what was there.
/// The same pixels give the same bytes. Throws InvalidArgument for other images, or more than 65,500 pixels a
/// side.
void encode_png(const Image& image, std::vector<uint8_t>& bytes);

}  // namespace sinter::nn::data
