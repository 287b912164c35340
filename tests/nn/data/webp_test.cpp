// WebP: pixels against those that were stored, orientations, and every kind of damage.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>
#include <webp/encode.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/files/webp.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using namespace testing;

Image random_image(int64_t height, int64_t width, int64_t channels) {
  std::mt19937 random(7);
  Image image;
  image.reshape(height, width, channels);
  std::ranges::generate(image.pixels, [&] { return static_cast<uint8_t>(random()); });
  return image;
}

Bytes taken(uint8_t* bytes, size_t size) {
  Bytes copy(bytes, bytes + size);
  WebPFree(bytes);
  return copy;
}
Bytes lossless(const Image& image) {
  uint8_t* bytes = nullptr;
  const auto width = static_cast<int>(image.width), height = static_cast<int>(image.height);
  const size_t size = image.channels == 4
                          ? WebPEncodeLosslessRGBA(image.pixels.data(), width, height, 4 * width, &bytes)
                          : WebPEncodeLosslessRGB(image.pixels.data(), width, height, 3 * width, &bytes);
  return taken(bytes, size);
}
Bytes lossy(const Image& image, float quality) {
  uint8_t* bytes = nullptr;
  const size_t size =
      WebPEncodeRGB(image.pixels.data(), static_cast<int>(image.width), static_cast<int>(image.height),
                    static_cast<int>(3 * image.width), quality, &bytes);
  return taken(bytes, size);
}

void append_le32(Bytes& bytes, size_t value) {
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
}
void append_chunk(Bytes& bytes, std::string_view type, const Bytes& payload) {
  bytes.insert(bytes.end(), type.begin(), type.end());
  append_le32(bytes, payload.size());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  if (payload.size() % 2 != 0) bytes.push_back(0);
}
/// The same picture in the extended format, with a chunk behind it.
Bytes extended(const Bytes& simple, const Image& image, uint8_t flags, std::string_view type,
               const Bytes& payload) {
  Bytes chunks = {'W', 'E', 'B', 'P'};
  const auto width = static_cast<uint8_t>(image.width - 1), height = static_cast<uint8_t>(image.height - 1);
  append_chunk(chunks, "VP8X", {flags, 0, 0, 0, width, 0, 0, height, 0, 0});
  chunks.insert(chunks.end(), simple.begin() + 12, simple.end());
  append_chunk(chunks, type, payload);
  Bytes file = {'R', 'I', 'F', 'F'};
  append_le32(file, chunks.size());
  file.insert(file.end(), chunks.begin(), chunks.end());
  return file;
}

Image decode(const Bytes& bytes, const DecodeOptions& options = {}) {
  Image image;
  decode_image(bytes, "picture", options, {}, image);
  return image;
}
std::string error_of(const Bytes& bytes, const DecodeOptions& options = {}) {
  return message_of<IoError>([&] { decode(bytes, options); });
}

TEST(WebP, ReadsWhatWasStored) {
  const Image stored = random_image(13, 21, 3);
  const Image image = decode(lossless(stored));
  EXPECT_EQ(image.height, 13);
  EXPECT_EQ(image.width, 21);
  EXPECT_EQ(image.pixels, stored.pixels);
  Image gray = stored;
  convert_channels(gray, 1);
  EXPECT_EQ(decode(lossless(stored), {.channels = 1}).pixels, gray.pixels);
}

TEST(WebP, ReadsLossyFilesNearly) {
  Image smooth;
  smooth.reshape(32, 48, 3);
  for (int64_t y = 0; y < 32; ++y) {
    for (int64_t x = 0; x < 48; ++x) {
      const uint8_t value[] = {static_cast<uint8_t>(5 * x), static_cast<uint8_t>(8 * y),
                               static_cast<uint8_t>(120)};
      std::copy_n(value, 3, smooth.row(y) + 3 * x);
    }
  }
  const Image image = decode(lossy(smooth, 95));
  ASSERT_EQ(image.pixels.size(), smooth.pixels.size());
  for (size_t i = 0; i < image.pixels.size(); ++i) EXPECT_NEAR(image.pixels[i], smooth.pixels[i], 24) << i;
}

TEST(WebP, LaysTransparentPixelsOverWhite) {
  const Image stored = random_image(7, 6, 4);
  Image expected = stored;
  lay_over_white(expected);
  // The encoder may change colours that cannot be seen.
  const Image image = decode(lossless(stored));
  ASSERT_EQ(image.channels, 3);
  EXPECT_EQ(image.pixels, expected.pixels);
}

TEST(WebP, TurnsUprightAsExifSaysAndPassesOverOddMetadata) {
  const Image stored = random_image(5, 4, 3);
  const Bytes simple = lossless(stored);
  Bytes exif = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0};
  Image turned = stored;
  orient(turned, 6);
  constexpr uint8_t kHasExif = 0x08, kHasProfile = 0x20;
  EXPECT_EQ(decode(extended(simple, stored, kHasExif, "EXIF", exif)).pixels, turned.pixels);
  EXPECT_EQ(decode(extended(simple, stored, kHasExif, "EXIF", exif), {.apply_orientation = false}).pixels,
            stored.pixels);
  const Bytes prefix = {'E', 'x', 'i', 'f', 0, 0};
  exif.insert(exif.begin(), prefix.begin(), prefix.end());
  EXPECT_EQ(decode(extended(simple, stored, kHasExif, "EXIF", exif)).pixels, turned.pixels);
  for (const Bytes& odd : {Bytes{}, Bytes{1, 2, 3}, Bytes(100, 'M')})
    EXPECT_EQ(decode(extended(simple, stored, kHasExif, "EXIF", odd)).pixels, stored.pixels);
  EXPECT_EQ(decode(extended(simple, stored, kHasProfile, "ICCP", {1})).pixels, stored.pixels);
}

TEST(WebP, RefusesWhatItCannotBe) {
  const Bytes webp = lossless(random_image(8, 9, 3));
  EXPECT_EQ(error_of(webp, {.max_pixels = 71}),
            "[webp] picture: expected at most 71 pixels but the image has 8 x 9");
  EXPECT_EQ(decode(webp, {.max_pixels = 72}).height, 8);
  EXPECT_THROW(decode(webp, {.channels = 2}), InvalidArgument);
  constexpr uint8_t kIsAnimated = 0x02;
  EXPECT_EQ(error_of(extended(webp, random_image(8, 9, 3), kIsAnimated, "ANIM", Bytes(6))),
            "[webp] picture: expected a picture but it is animated");
}

TEST(WebP, RefusesEveryTruncation) {
  const Image image = random_image(6, 5, 3);
  for (const Bytes& webp : {lossless(image), lossless(random_image(6, 5, 4)), lossy(image, 80)}) {
    for (size_t size = 0; size < webp.size(); ++size) {
      const Bytes cut(webp.begin(), webp.begin() + static_cast<std::ptrdiff_t>(size));
      const std::string error = error_of(cut);
      EXPECT_TRUE(error.starts_with(size < 12 ? "[image] picture: " : "[webp] picture: damaged or no WebP: "))
          << size << error;
    }
  }
}

TEST(WebP, SurvivesFlippedBits) {
  std::mt19937 random(7);
  for (const Bytes& whole : {lossless(random_image(20, 20, 4)), lossy(random_image(20, 20, 3), 50)}) {
    for (int i = 0; i < 300; ++i) {
      Bytes bytes = whole;
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1u << random() % 8);
      try {
        decode(bytes, {.max_pixels = 1 << 20});
      } catch (const IoError&) {  // some flips are damage, most are other pixels
      }
    }
  }
}

TEST(WebP, IsAnImageOfAFolder) {
  const TemporaryFolder folder;
  const Image stored = random_image(3, 4, 3);
  folder.write("ant/a.WebP", lossless(stored));
  EXPECT_EQ(open_image_folder(folder.path())->get(0).image.pixels, stored.pixels);
}

}  // namespace
}  // namespace sinter::nn::data
