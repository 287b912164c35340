// PNG: every kind of pixel against the values that were stored, and every kind of damage.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/image/files/encode_png.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/files/png.h>

#include "nn/data/png_samples.h"

namespace sinter::nn::data {
namespace {

using namespace testing;

Image decode(const Bytes& bytes, const DecodeOptions& options = {}) {
  Image image;
  decode_image(bytes, "picture", options, {}, image);
  return image;
}
std::string error_of(const Bytes& bytes, const DecodeOptions& options = {}) {
  return message_of<IoError>([&] { decode(bytes, options); });
}

// The value of 8 bits nearest to `value` of `depth` bits.
int to_8_bits(uint16_t value, int depth) {
  return static_cast<int>(std::lround(255.0 * value / ((1 << depth) - 1)));
}

TEST(Png, ReadsGrayAndColourOfEveryDepth) {
  for (const bool interlaced : {false, true}) {
    for (const auto& [type, depth] : {std::pair{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}}) {
      SCOPED_TRACE(fmt::format("type {}, {} bits, interlaced {}", type, depth, interlaced));
      const PngSample sample = random_png(13, 21, type, depth, interlaced);
      const int channels = static_cast<int>(sample.channels());
      const Image image = decode(make_png(sample), {.channels = channels});
      ASSERT_EQ(image.height, 13);
      ASSERT_EQ(image.width, 21);
      ASSERT_EQ(image.channels, channels);
      for (size_t i = 0; i < sample.values.size(); ++i)
        ASSERT_EQ(image.pixels[i], to_8_bits(sample.values[i], depth)) << i;
    }
  }
}

TEST(Png, WhatIsEncodedComesBack) {
  std::mt19937 random(1);
  for (const auto& [height, width, channels] :
       {std::array<int64_t, 3>{1, 1, 1}, {1, 1, 3}, {7, 33, 3}, {64, 5, 1}}) {
    Image image;
    image.reshape(height, width, channels);
    for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random());
    Bytes bytes(9, 1), again;
    encode_png(image, bytes);
    encode_png(image, again);
    EXPECT_EQ(bytes, again);
    EXPECT_EQ(decode(bytes, {.channels = static_cast<int>(channels)}).pixels, image.pixels);
  }
  Image image;
  Bytes bytes;
  EXPECT_EQ(message_of<InvalidArgument>([&] { encode_png(image, bytes); }),
            "[png] expected an image of 1 or 3 channels and up to 65500 pixels a side but got 0 x 0 x 0");
  image.reshape(1, 1, 2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { encode_png(image, bytes); }),
            "[png] expected an image of 1 or 3 channels and up to 65500 pixels a side but got 1 x 1 x 2");
}

TEST(Png, LooksColoursUpInThePalette) {
  PngSample sample = random_png(5, 9, 3, 4, true, 6);
  Bytes palette;
  for (int i = 0; i < 18; ++i) palette.push_back(static_cast<uint8_t>(i * 13));
  sample.chunks = {{"PLTE", palette}};
  const Image image = decode(make_png(sample));
  for (size_t i = 0; i < sample.values.size(); ++i) {
    for (size_t c = 0; c < 3; ++c) ASSERT_EQ(image.pixels[3 * i + c], palette[sample.values[i] * 3u + c]);
  }
  // With an alpha for the first colours; the others are opaque.
  sample.chunks.emplace_back("tRNS", Bytes{0, 128});
  const Image laid = decode(make_png(sample));
  for (size_t i = 0; i < sample.values.size(); ++i) {
    const int alpha = sample.values[i] == 0 ? 0 : sample.values[i] == 1 ? 128 : 255;
    const int stored = palette[sample.values[i] * 3u];
    ASSERT_EQ(laid.pixels[3 * i], (stored * alpha + 255 * (255 - alpha) + 127) / 255);
  }
}

TEST(Png, LaysTransparentPixelsOverWhite) {
  for (const int type : {4, 6}) {
    for (const int depth : {8, 16}) {
      const PngSample sample = random_png(7, 6, type, depth, false);
      const auto channels = static_cast<size_t>(sample.channels()), colours = channels - 1;
      const Image image = decode(make_png(sample), {.channels = static_cast<int>(colours)});
      for (size_t i = 0; i < sample.values.size() / channels; ++i) {
        const int alpha = to_8_bits(sample.values[i * channels + colours], depth);
        for (size_t c = 0; c < colours; ++c) {
          const int stored = to_8_bits(sample.values[i * channels + c], depth);
          ASSERT_EQ(image.pixels[i * colours + c], (stored * alpha + 255 * (255 - alpha) + 127) / 255);
        }
      }
    }
  }
}

TEST(Png, PassesOverProfilesAndTexts) {
  PngSample sample = random_png(3, 4, 2, 8, false);
  const Image plain = decode(make_png(sample));
  // A profile that is none, a gamma of 0 and a text that does not unpack: libpng would warn of each.
  sample.chunks = {{"gAMA", {0, 0, 0, 0}}, {"iCCP", {'x', 0, 0, 1, 2, 3}}, {"zTXt", {'a', 0, 0, 9}}};
  EXPECT_EQ(decode(make_png(sample)).pixels, plain.pixels);
}

TEST(Png, MetadataNeverJudgesPixels) {
  const PngSample plain = random_png(3, 4, 2, 8, false);
  const std::vector<uint8_t> pixels = decode(make_png(plain)).pixels;
  const Bytes upright = {'I', 'I', '*', 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const std::pair<const char*, std::vector<std::pair<std::string, Bytes>>> cases[] = {
      {"an empty eXIf", {{"eXIf", {}}}},
      {"one that is no TIFF", {{"eXIf", {'g', 'a', 'r', 'b', 'a', 'g', 'e'}}}},
      {"one without an order of bytes", {{"eXIf", {0, 0, 17, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}},
      {"two", {{"eXIf", upright}, {"eXIf", upright}}},
      {"profiles twice, and a wrong gamma",
       {{"iCCP", {'x', 0, 0, 1}}, {"iCCP", {'x', 0, 0, 1}}, {"gAMA", {}}}},
      {"a palette that is a suggestion, and too long", {{"PLTE", Bytes(3 * 300)}}},
      {"a transparent colour that is too long", {{"tRNS", {0, 9, 0, 9, 0, 9, 1, 2}}}},
      {"chunks that nobody knows",
       {{"abCd", {1, 2}}, {"abCd", {}}, {"tIME", {1}}, {"hIST", {1}}, {"bKGD", {}}}}};
  for (const auto& [name, chunks] : cases) {
    PngSample sample = plain;
    sample.chunks = chunks;
    EXPECT_EQ(decode(make_png(sample)).pixels, pixels) << name;
    Bytes damaged = make_png(sample);  // by a wrong checksum of the first of them
    if (chunks.front().first == "tRNS") continue;
    damaged[33 + 8 + chunks.front().second.size()] ^= 1;
    EXPECT_EQ(decode(damaged).pixels, pixels) << name;
  }
}

TEST(Png, AnAlphaForMoreColoursThanThereAreIsCut) {
  PngSample sample = random_png(5, 9, 3, 4, false, 2);
  sample.chunks = {{"PLTE", {10, 20, 30, 40, 50, 60}}, {"tRNS", {0, 255}}};
  const std::vector<uint8_t> expected = decode(make_png(sample)).pixels;
  sample.chunks[1].second = Bytes(300, 255);
  sample.chunks[1].second[0] = 0;
  EXPECT_EQ(decode(make_png(sample)).pixels, expected);
  std::swap(sample.chunks[0], sample.chunks[1]);  // and in the wrong order
  EXPECT_EQ(decode(make_png(sample)).pixels, expected);
  Bytes png = make_png(sample);
  png[33 + 8] ^= 1;  // it is of the pixels: its damage is theirs
  EXPECT_EQ(error_of(png), "[png] picture: damaged: the checksum of tRNS is wrong");
  sample = random_png(3, 4, 2, 8, false);
  sample.chunks = {{"tRNS", {0, 9, 0}}};
  EXPECT_EQ(error_of(make_png(sample)), "[png] picture: damaged or no PNG: tRNS: invalid");
}

TEST(Png, WhatIsLeftOverBehindThePixelsIsNoDamage) {
  const PngSample sample = random_png(6, 5, 2, 8, false);
  const std::vector<uint8_t> pixels = decode(make_png(sample)).pixels;
  const auto with_data = [&](const Bytes& stream) {
    Bytes png = make_png(sample);
    png.resize(33);  // up to the end of the header
    append_chunk(png, "IDAT", stream);
    append_chunk(png, "IEND", {});
    return png;
  };
  Bytes raw, more;
  append_rows(sample, {0, 0, 1, 1}, raw);
  Bytes surplus = stored_stream(raw);
  surplus.insert(surplus.end(), {1, 2, 3});
  EXPECT_EQ(decode(with_data(surplus)).pixels, pixels);
  more = raw;
  more.resize(raw.size() + 100);  // six more rows in the stream
  EXPECT_EQ(decode(with_data(stored_stream(more))).pixels, pixels);
  Bytes wrong = stored_stream(raw);
  wrong[20] ^= 1;  // which zlib's own checksum finds
  EXPECT_NE(error_of(with_data(wrong)), "no error");
  raw.resize(raw.size() - 1);
  EXPECT_TRUE(error_of(with_data(stored_stream(raw))).starts_with("[png] picture: damaged or no PNG"));
}

TEST(Png, TurnsUprightAsExifSays) {
  PngSample sample = random_png(3, 4, 2, 8, false);
  const Image plain = decode(make_png(sample));
  sample.chunks = {
      {"eXIf", {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0}}};
  Image turned = plain;
  orient(turned, 6);
  const Image image = decode(make_png(sample));
  EXPECT_EQ(image.height, 4);
  EXPECT_EQ(image.pixels, turned.pixels);
  EXPECT_EQ(decode(make_png(sample), {.apply_orientation = false}).pixels, plain.pixels);
  Bytes& exif = sample.chunks.front().second;  // some writers put the prefix of a JPEG's segment before it
  const Bytes prefix = {'E', 'x', 'i', 'f', 0, 0};
  exif.insert(exif.begin(), prefix.begin(), prefix.end());
  EXPECT_EQ(decode(make_png(sample)).pixels, turned.pixels);
  sample.chunks.push_back(sample.chunks.front());  // two: neither is believed
  EXPECT_EQ(decode(make_png(sample)).pixels, plain.pixels);
}

TEST(Png, ConvertsBetweenGrayAndColour) {
  const PngSample gray = random_png(3, 4, 0, 8, false);
  Image expected = decode(make_png(gray), {.channels = 1});
  convert_channels(expected, 3);
  EXPECT_EQ(decode(make_png(gray)).pixels, expected.pixels);
}

TEST(Png, RefusesImagesBeyondTheLimits) {
  const Bytes png = make_png(random_png(8, 9, 2, 8, false));
  EXPECT_EQ(error_of(png, {.max_pixels = 71}),
            "[png] picture: expected at most 71 pixels but the image has 8 x 9");
  EXPECT_EQ(decode(png, {.max_pixels = 72}).height, 8);
  Bytes bytes = make_png({.height = 1, .width = 1, .values = {1, 2, 3}});
  for (const size_t at : {18u, 22u}) {  // 7000 x 7000 in a file of 70 bytes, with a right checksum
    bytes[at] = 0x1b;
    bytes[at + 1] = 0x58;
  }
  Bytes crc;
  append_be32(crc, extend_crc32(0, std::as_bytes(std::span(bytes).subspan(12, 17))));
  std::copy(crc.begin(), crc.end(), bytes.begin() + 29);
  EXPECT_EQ(error_of(bytes), fmt::format("[png] picture: expected the pixels of 7000 x 7000 but the file has "
                                         "only {} bytes",
                                         bytes.size()));
  EXPECT_THROW(decode(png, {.channels = 2}), InvalidArgument);
}

TEST(Png, RefusesEveryTruncation) {
  for (const bool interlaced : {false, true}) {
    const Bytes png = make_png(random_png(6, 5, 6, 8, interlaced));
    for (size_t size = 0; size < png.size(); ++size) {
      const Bytes cut(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(size));
      const std::string error = error_of(cut);
      const char* const start = size < 8 ? "[image] picture: " : "[png] picture: damaged or no PNG";
      EXPECT_TRUE(error.starts_with(start)) << size << error;
    }
  }
}

TEST(Png, NoticesEveryChangedByteOfThePixels) {
  const Bytes png = make_png(random_png(6, 5, 2, 8, false));
  std::mt19937 random(7);
  // From the header's length to the last checksum; types of chunks are not all covered by one (lower case
  // says that a chunk may be passed over), but then the pixels are missing.
  for (size_t at = 8; at < png.size(); ++at) {
    Bytes changed = png;
    changed[at] = static_cast<uint8_t>(changed[at] ^ (1u << (random() % 8)));
    EXPECT_TRUE(error_of(changed).starts_with("[png] picture: ")) << at << error_of(changed);
  }
}

TEST(Png, IsAnImageOfAFolder) {
  const TemporaryFolder folder;
  const PngSample sample = random_png(3, 4, 2, 8, false);
  folder.write("ant/a.PNG", make_png(sample));
  folder.write("bee/b.png", {1, 2, 3});
  const auto images = open_image_folder(folder.path());
  EXPECT_EQ(images->size(), 2);
  EXPECT_EQ(images->get(0).image.pixels, decode(make_png(sample)).pixels);
  EXPECT_EQ(message_of<IoError>([&] { images->get(1); }),
            "[image] " + (folder.path() / "bee/b.png").string() +
                ": expected a JPEG, PNG, WebP, PGM (P5) or PPM (P6) file but its first bytes are of none");
}

}  // namespace
}  // namespace sinter::nn::data
