// JPEGs of which only a window is looked at: its pixels are those of the whole, and damage is found all the
// same.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/data/image/jpeg.h>

#include "nn/data/engine_samples.h"

namespace sinter::nn::data {
namespace {

using testing::Bytes;
using testing::damaged_inside;
using testing::load_picture;
using testing::photograph_file;

Image decode(const Bytes& bytes, const DecodeHint& reduction, int channels = 3) {
  Image image;
  image.pixels.assign(1 << 20, 77);  // what an earlier image has left
  decode_jpeg(
      bytes, "picture", {.channels = channels}, [&](int64_t, int64_t) { return reduction; }, image);
  return image;
}

DecodeHint part(int by, const PixelWindow& window, bool is_sound = false) {
  DecodeHint reduction = by;
  reduction.window = window;
  reduction.is_sound = is_sound;
  return reduction;
}

bool same_inside(const Image& a, const Image& b, const PixelWindow& window) {
  for (int64_t y = window.top; y < window.bottom; ++y) {
    const auto bytes = static_cast<size_t>((window.right - window.left) * a.channels);
    if (std::memcmp(a.row(y) + window.left * a.channels, b.row(y) + window.left * a.channels, bytes) != 0)
      return false;
  }
  return true;
}

TEST(PartialJpeg, AWindowHasThePixelsOfTheWhole) {
  std::vector<Bytes> files = {photograph_file(37, 61, 1), photograph_file(200, 333, 2),
                              photograph_file(129, 64, 3)};
  for (const char* name :
       {"rgb.jpg", "gray.jpg", "orientation_1.jpg", "orientation_6.jpg", "progressive.jpg", "cmyk.jpg"})
    files.push_back(load_picture(name));
  Generator generator(7);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(generator.below(static_cast<uint64_t>(limit)));
  };
  for (size_t file = 0; file < files.size(); ++file) {
    for (const int by : {1, 2, 4, 8}) {
      for (const int channels : {1, 3}) {
        const Image whole = decode(files[file], by, channels);
        for (int trial = 0; trial < 60; ++trial) {
          PixelWindow window{below(whole.height), below(whole.width), 0, 0};
          window.bottom = window.top + 1 + below(whole.height - window.top);
          window.right = window.left + 1 + below(whole.width - window.left);
          const Image image = decode(files[file], part(by, window, trial % 2 == 1), channels);
          ASSERT_EQ(image.height, whole.height);
          ASSERT_EQ(image.width, whole.width);
          EXPECT_TRUE(same_inside(image, whole, window))
              << "file " << file << " by " << by << ": rows " << window.top << " to " << window.bottom
              << ", columns " << window.left << " to " << window.right << " of " << whole.height << " x "
              << whole.width;
        }
      }
    }
  }
}

TEST(PartialJpeg, AWindowMayBeAnywhere) {
  const Bytes file = photograph_file(70, 90, 4);
  const Image whole = decode(file, 1);
  for (const PixelWindow& window : std::vector<PixelWindow>{{-50, -50, 500, 500},
                                                            {0, 0, 0, 0},
                                                            {60, 80, 10, 10},
                                                            {1000, 1000, 2000, 2000},
                                                            {-9, -9, -3, -3}}) {
    const Image image = decode(file, part(1, window));
    ASSERT_EQ(image.height, 70);
    EXPECT_TRUE(
        same_inside(image, whole,
                    {std::clamp<int64_t>(window.top, 0, 69), std::clamp<int64_t>(window.left, 0, 89),
                     std::clamp<int64_t>(window.bottom, 0, 70), std::clamp<int64_t>(window.right, 0, 90)}));
  }
}

TEST(PartialJpeg, DamageBehindTheWindowIsFound) {
  const PixelWindow top{0, 0, 5, 20};
  const Bytes sound = photograph_file(90, 120, 5);
  for (const int by : {1, 2, 8}) {
    EXPECT_NO_THROW(decode(sound, part(by, {0, 0, 2, 2})));
    EXPECT_THROW(decode(damaged_inside(90, 120, 5), part(by, {0, 0, 2, 2})), IoError);
    for (size_t cut = 1; cut < sound.size() / 2; cut += 37) {
      const Bytes bytes(sound.begin(), sound.end() - static_cast<std::ptrdiff_t>(cut));
      EXPECT_THROW(decode(bytes, part(by, {0, 0, 2, 2})), IoError) << cut;
    }
  }
  EXPECT_NO_THROW(decode(damaged_inside(90, 120, 5), part(1, top, true)))
      << "known to be sound: nobody looks";
}

}  // namespace
}  // namespace sinter::nn::data
