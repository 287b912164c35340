// What decoders in hardware must know of a JPEG: whether it is of the plain kind that they are made for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace sinter::nn::data {

/// A plain JPEG: baseline, 8 bits, Huffman, gray or YCbCr with chroma in every or every second column and
/// row, all in one scan.
struct BaselineJpeg {
  int64_t height = 0, width = 0;  ///< as stored
  int components = 0;             ///< 1: gray, 3: YCbCr
  int orientation = 1;            ///< of its EXIF data, 1 to 8
};

/// Walks through a whole file, marker by marker. None unless it is a plain JPEG from its first byte to
/// its end marker, with tables for every component, and in its scan nothing but data and the restart markers
/// that belong there: other files, and those that are damaged so that it shows, are decode_jpeg's. Damage
/// inside the coded data is not seen. Reads nothing outside `bytes`, and costs a pass over the scan for the
/// byte 0xff.
std::optional<BaselineJpeg> read_baseline_jpeg(std::span<const uint8_t> bytes);

}  // namespace sinter::nn::data
