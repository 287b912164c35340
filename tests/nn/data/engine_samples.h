// What the tests of decoding on engines share: folders of JPEGs of many kinds, and pictures like photographs.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/image/image.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data::testing {

/// Slow changes of colour with some texture.
inline Image photograph(int64_t height, int64_t width, uint64_t seed) {
  Image image;
  image.reshape(height, width, 3);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double phase = static_cast<double>(seed);
      const auto at = static_cast<uint64_t>(y * width + x);
      const double texture = static_cast<double>(philox(seed, at).words[0] % 13);
      for (int64_t c = 0; c < 3; ++c) {
        const double wave = std::sin(static_cast<double>(x) / (23.0 + static_cast<double>(c)) + phase) +
                            std::cos(static_cast<double>(y) / 31.0 + static_cast<double>(c));
        image.row(y)[3 * x + c] = static_cast<uint8_t>(110.0 + 45.0 * wave + texture);
      }
    }
  }
  return image;
}

inline Bytes photograph_file(int64_t height, int64_t width, uint64_t seed) {
  Bytes bytes;
  encode_jpeg(photograph(height, width, seed), 90, bytes);
  return bytes;
}

/// The file of a photograph whose coded data is damaged such that only a decoder can tell.
inline Bytes damaged_inside(int64_t height, int64_t width, uint64_t seed) {
  Bytes bytes = photograph_file(height, width, seed);
  size_t first = bytes.size() / 2;
  while (bytes[first - 1] == 0xFF) ++first;  // no marker
  for (size_t i = first; i < bytes.size() - 2; ++i) bytes[i] = 0xAA;
  return bytes;
}

/// Writes `count` plain photographs of different sizes, a gray one, and of every other kind one; returns the
/// number of files.
inline int64_t write_mixed_folder(const TemporaryFolder& folder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = (i % 2 == 0 ? "even/" : "odd/") + std::to_string(100 + i) + ".jpg";
    folder.write(name, photograph_file(20 + 3 * i, 17 + i * 7 % 40, static_cast<uint64_t>(i)));
  }
  const std::vector<std::string> others = {"progressive.jpg", "cmyk.jpg",          "ycck.jpg",
                                           "gray.jpg",        "orientation_6.jpg", "rgb.ppm"};
  for (const std::string& name : others) folder.write("even/" + name, load_picture(name));
  return count + static_cast<int64_t>(others.size());
}

}  // namespace sinter::nn::data::testing
