// PNG files of every kind, made here byte by byte, so that what is expected of the reader does not come from
// the library that it uses.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include <sinter/core/file_system/file_system.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data::testing {

/// What a PNG stores. Values are given row by row, `channels()` a pixel, each as wide as `depth` says.
struct PngSample {
  int64_t height = 0;
  int64_t width = 0;
  int colour_type = 2;  ///< 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha
  int depth = 8;
  bool interlaced = false;
  std::vector<uint16_t> values;
  std::vector<std::pair<std::string, Bytes>> chunks = {};  ///< between the header and the pixels

  int64_t channels() const { return colour_type == 2 ? 3 : colour_type == 4 ? 2 : colour_type == 6 ? 4 : 1; }
};

inline void append_be32(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

inline void append_chunk(Bytes& png, std::string_view type, const Bytes& payload) {
  append_be32(png, static_cast<uint32_t>(payload.size()));
  const size_t begin = png.size();
  png.insert(png.end(), type.begin(), type.end());
  png.insert(png.end(), payload.begin(), payload.end());
  append_be32(png, extend_crc32(0, std::as_bytes(std::span(png).subspan(begin))));
}

/// A zlib stream of stored blocks.
inline Bytes stored_stream(const Bytes& raw) {
  Bytes stream = {0x78, 0x01};
  uint32_t a = 1, b = 0;
  for (size_t at = 0; at == 0 || at < raw.size(); at += 65535) {
    const size_t count = std::min<size_t>(65535, raw.size() - at);
    stream.push_back(at + count == raw.size() ? 1 : 0);
    for (const size_t field : {count, ~count}) {
      stream.push_back(static_cast<uint8_t>(field));
      stream.push_back(static_cast<uint8_t>(field >> 8));
    }
    stream.insert(stream.end(), raw.begin() + static_cast<std::ptrdiff_t>(at),
                  raw.begin() + static_cast<std::ptrdiff_t>(at + count));
  }
  for (const uint8_t byte : raw) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  append_be32(stream, b << 16 | a);
  return stream;
}

/// The pixels (top + i * down, left + j * right) as unfiltered rows.
inline void append_rows(const PngSample& sample, std::array<int64_t, 4> grid, Bytes& raw) {
  const auto [top, left, down, right] = grid;
  if (top >= sample.height || left >= sample.width) return;
  for (int64_t y = top; y < sample.height; y += down) {
    raw.push_back(0);  // no filter
    uint32_t bits = 0;
    int filled = 0;
    for (int64_t x = left; x < sample.width; x += right) {
      for (int64_t c = 0; c < sample.channels(); ++c) {
        bits = bits << sample.depth |
               sample.values[static_cast<size_t>((y * sample.width + x) * sample.channels() + c)];
        for (filled += sample.depth; filled >= 8; filled -= 8)
          raw.push_back(static_cast<uint8_t>(bits >> (filled - 8)));
      }
    }
    if (filled > 0) raw.push_back(static_cast<uint8_t>(bits << (8 - filled)));
  }
}

/// Rows of whole bytes, `bytes` each a pixel, filtered in turns by all of the five filters. Source: W3C, "PNG
/// Specification", https://www.w3.org/TR/png-3/#9Filters.
inline Bytes filtered(const Bytes& rows, size_t row_bytes, size_t bytes, size_t first_filter) {
  Bytes result;
  const auto paeth = [](int a, int b, int c) {
    const int p = a + b - c, pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
    return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
  };
  for (size_t y = 0; y * row_bytes < rows.size(); ++y) {
    const size_t filter = (first_filter + y) % 5;
    result.push_back(static_cast<uint8_t>(filter));
    for (size_t x = 0; x < row_bytes; ++x) {
      const size_t at = y * row_bytes + x;
      const int left = x < bytes ? 0 : rows[at - bytes], above = y == 0 ? 0 : rows[at - row_bytes];
      const int corner = x < bytes || y == 0 ? 0 : rows[at - row_bytes - bytes];
      const int predicted[] = {0, left, above, (left + above) / 2, paeth(left, above, corner)};
      result.push_back(static_cast<uint8_t>(rows[at] - predicted[filter]));
    }
  }
  return result;
}

inline Bytes make_png(const PngSample& sample) {
  Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  Bytes header;
  append_be32(header, static_cast<uint32_t>(sample.width));
  append_be32(header, static_cast<uint32_t>(sample.height));
  for (const int value : {sample.depth, sample.colour_type, 0, 0, sample.interlaced ? 1 : 0})
    header.push_back(static_cast<uint8_t>(value));
  append_chunk(png, "IHDR", header);
  for (const auto& [type, payload] : sample.chunks) append_chunk(png, type, payload);
  Bytes raw;
  if (sample.interlaced) {  // Adam7
    for (const std::array<int64_t, 4> grid : {std::array<int64_t, 4>{0, 0, 8, 8},
                                              {0, 4, 8, 8},
                                              {4, 0, 8, 4},
                                              {0, 2, 4, 4},
                                              {2, 0, 4, 2},
                                              {0, 1, 2, 2},
                                              {1, 0, 2, 1}})
      append_rows(sample, grid, raw);
  } else {
    append_rows(sample, {0, 0, 1, 1}, raw);
  }
  append_chunk(png, "IDAT", stored_stream(raw));
  append_chunk(png, "IEND", {});
  return png;
}

/// A sample whose values are drawn evenly over what its depth allows, below `bound` if that is less.
inline PngSample random_png(int64_t height, int64_t width, int colour_type, int depth, bool interlaced,
                            uint16_t bound = 65535) {
  PngSample sample{.height = height,
                   .width = width,
                   .colour_type = colour_type,
                   .depth = depth,
                   .interlaced = interlaced,
                   .values = {}};
  uint32_t state = 12345;
  for (int64_t i = 0; i < height * width * sample.channels(); ++i) {
    state = state * 1664525 + 1013904223;
    const uint32_t value = depth == 16 ? state >> 16 : (state >> 16) & ((1u << depth) - 1);
    sample.values.push_back(static_cast<uint16_t>(bound < 65535 ? value % bound : value));
  }
  return sample;
}

}  // namespace sinter::nn::data::testing
