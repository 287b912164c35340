// Pixels to JPEG (libjpeg-turbo does the encoding).
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {

/// Encodes an image of 1 (gray) or 3 (RGB) channels as a baseline JPEG into `bytes`, in place of what was
/// there. `quality` is libjpeg's, from 1 to 100; colours are stored at half the resolution, as is usual. The
/// same pixels give the same bytes. Throws InvalidArgument for other images or more than 65,500 pixels a
/// side.
void encode_jpeg(const Image& image, int quality, std::vector<uint8_t>& bytes);

}  // namespace sinter::nn::data
