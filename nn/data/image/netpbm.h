// Binary PGM (P5, gray) and PPM (P6, RGB) images of 8 bits a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

/// True if the bytes start as a binary PGM or PPM file does.
bool is_netpbm(std::span<const uint8_t> bytes);

/// Decodes the bytes of a file into `image`, reusing its buffer. Values are scaled to 0 ... 255 if the file's
/// maximum is less. Throws IoError, naming the byte, if the header is wrong, the maximum is over 255, the
/// pixels do not fill the rest of the file exactly, or the image is beyond options.max_pixels. Source:
/// netpbm's pgm(5) and ppm(5).
void decode_netpbm(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                   Image& image);

}  // namespace sinter::nn::data
