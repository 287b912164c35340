// Masks have a way of their own through the reader of PNGs: its pixels against those that were stored, and
// all that it does against libpng, which reads every file with a chunk of transparency.
#include <algorithm>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/encode_png.h>
#include <sinter/nn/data/image/files/plain_png.h>
#include <sinter/nn/data/image/files/png.h>

#include "common/test_cases.h"
#include "nn/data/png_samples.h"

namespace sinter::nn::data {
namespace {

using namespace testing;

const DecodeOptions kStored{.channels = 1, .stored_values = true};

Image decode(const Bytes& bytes, const DecodeOptions& options) {
  Image image;
  decode_png(bytes, "picture", options, image);
  return image;
}
std::string error_of(const Bytes& bytes, const DecodeOptions& options) {
  return message_of<IoError>([&] { decode(bytes, options); });
}

/// Where the first chunk of a type begins.
size_t find_chunk(const Bytes& png, std::string_view type) {
  const auto at = std::search(png.begin(), png.end(), type.begin(), type.end());
  return static_cast<size_t>(at - png.begin()) - 4;
}

/// A mask: patches of few classes with ragged edges, so that rows have long stretches of one value and short
/// ones.
PngSample mask_png(int64_t height, int64_t width, int type, int depth, std::mt19937& random) {
  PngSample sample{.height = height, .width = width, .colour_type = type, .depth = depth, .values = {}};
  uint16_t value = 0;
  for (int64_t i = 0; i < height * width; ++i) {
    const bool repeats_above = i >= width && random() % 8 != 0;
    if (random() % 11 == 0) value = static_cast<uint16_t>(random() % (1u << depth));
    sample.values.push_back(repeats_above ? sample.values[static_cast<size_t>(i - width)] : value);
  }
  return sample;
}

// Masks have a way of their own through the reader; with a chunk more they go through libpng.
TEST(PlainPng, EveryFilterAndDepthGivesWhatWasStored) {
  std::mt19937 random(3);
  for (const int type : {0, 3}) {
    for (const int depth : {1, 2, 4, 8}) {
      for (const auto& [height, width] : {std::pair{1, 1}, {3, 1}, {1, 9}, {11, 8}, {13, 35}, {40, 130}}) {
        for (size_t filter = 0; filter < 5; ++filter) {
          PngSample sample = mask_png(height, width, type, depth, random);
          if (type == 3) sample.chunks = {{"PLTE", Bytes(size_t{3} << depth)}};
          Bytes rows, unfiltered;
          append_rows(sample, {0, 0, 1, 1}, unfiltered);
          const size_t row_bytes = unfiltered.size() / static_cast<size_t>(height) - 1;
          for (size_t i = 0; i < unfiltered.size(); ++i) {
            if (i % (row_bytes + 1) != 0) rows.push_back(unfiltered[i]);
          }
          const Bytes stream = stored_stream(filtered(rows, row_bytes, 1, filter));
          for (const bool through_libpng : {false, true}) {
            SCOPED_TRACE(fmt::format("type {}, {} bits, {} x {}, filter {}, libpng {}", type, depth, height,
                                     width, filter, through_libpng));
            if (through_libpng) sample.chunks.emplace_back("tRNS", type == 0 ? Bytes{0, 1} : Bytes{9});
            Bytes png = make_png(sample);
            png.resize(find_chunk(png, "IDAT"));
            const auto cut = static_cast<std::ptrdiff_t>(random() % stream.size());
            append_chunk(png, "IDAT", Bytes(stream.begin(), stream.begin() + cut));
            append_chunk(png, "IDAT", Bytes(stream.begin() + cut, stream.end()));
            append_chunk(png, "IEND", {});
            const Image image = decode(png, kStored);
            ASSERT_EQ(image.height, height);
            ASSERT_EQ(image.width, width);
            for (size_t i = 0; i < sample.values.size(); ++i) ASSERT_EQ(image.pixels[i], sample.values[i]);
          }
        }
      }
    }
  }
}

TEST(PlainPng, DamageIsFound) {
  std::mt19937 random(4);
  const PngSample sample = mask_png(9, 13, 0, 8, random);
  const Bytes png = make_png(sample);
  for (size_t at = 8; at < png.size(); ++at) {
    Bytes changed = png;
    changed[at] = static_cast<uint8_t>(changed[at] ^ (1u << (random() % 8)));
    EXPECT_TRUE(error_of(changed, kStored).starts_with("[png] picture: ")) << at;
    const Bytes cut(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_TRUE(error_of(cut, kStored).starts_with("[png] picture: damaged or no PNG")) << at;
  }
  PngSample palette = mask_png(9, 13, 3, 4, random);
  palette.values[20] = 8;
  palette.chunks = {{"PLTE", Bytes(3 * 7)}};
  for (uint16_t& value : palette.values) value = std::min<uint16_t>(value, 8);
  EXPECT_TRUE(error_of(make_png(palette), kStored).starts_with("[png] picture: damaged or no PNG"));
  palette.chunks = {{"PLTE", Bytes(3 * 9)}};
  EXPECT_EQ(decode(make_png(palette), kStored).pixels[20], 8);
  Bytes raw;
  append_rows(sample, {0, 0, 1, 1}, raw);
  raw[14] = 5;  // no filter
  Bytes filter(png.begin(), png.begin() + 33);
  append_chunk(filter, "IDAT", stored_stream(raw));
  append_chunk(filter, "IEND", {});
  EXPECT_TRUE(error_of(filter, kStored).starts_with("[png] picture: damaged or no PNG"));
}

/// The pixels of a mask, filtered and packed: by an encoder, or in blocks that are stored, where all filters
/// come in turns and bytes may be wrong from the start.
Bytes packed_rows(int64_t height, int64_t width, std::mt19937& random) {
  const PngSample sample = mask_png(height, width, 0, 8, random);
  Image image;
  image.reshape(height, width, 1);
  std::ranges::copy(sample.values, image.pixels.begin());
  if (random() % 3 == 0) {
    Bytes rows = filtered(image.pixels, static_cast<size_t>(width), 1, random() % 5);
    if (random() % 2 == 0) rows[random() % rows.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    if (random() % 8 == 0) rows.resize(random() % (2 * rows.size()));
    return stored_stream(rows);
  }
  Bytes png;
  encode_png(image, png);
  const size_t at = find_chunk(png, "IDAT");
  const size_t length = size_t{png[at + 1]} << 16 | size_t{png[at + 2]} << 8 | png[at + 3];
  return {png.begin() + static_cast<std::ptrdiff_t>(at + 8),
          png.begin() + static_cast<std::ptrdiff_t>(at + 8 + length)};
}

/// A mask of random kind; with a chunk of transparency in front of its pixels, or without.
struct RandomMask {
  explicit RandomMask(std::mt19937& random) {
    const int type = random() % 2 == 0 ? 0 : 3;
    const int depth = 1 << random() % 4;
    const auto height = static_cast<int64_t>(1 + random() % 40),
               bytes = static_cast<int64_t>(1 + random() % 70);
    Bytes stream = packed_rows(height, bytes, random);
    if (random() % 3 == 0) stream[random() % stream.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    if (random() % 8 == 0) stream.resize(random() % stream.size());
    if (random() % 8 == 0 && stream.size() > 1) {  // a small window, of which the next byte tells the check
      stream[0] = static_cast<uint8_t>(8 + 16 * (random() % 4));
      stream[1] = static_cast<uint8_t>(31 - 256 * stream[0] % 31);
    }
    if (random() % 8 == 0) stream.insert(stream.end(), random() % 9, 7);
    const int64_t unused = static_cast<int64_t>(random() % 8) / depth;  // pixels of a row's last byte
    Bytes fields;
    append_be32(fields, static_cast<uint32_t>(std::max<int64_t>(1, bytes * 8 / depth - unused)));
    append_be32(fields, static_cast<uint32_t>(height));
    for (const int field : {depth, type, 0, 0, random() % 16 == 0 ? 1 : 0})
      fields.push_back(static_cast<uint8_t>(field));
    append_chunk(head, "IHDR", fields);
    const size_t colours = random() % 4 == 0 ? 1 + random() % 256 : size_t{1} << depth;
    if (type == 3) append_chunk(head, "PLTE", Bytes(3 * colours, 5));
    while (!stream.empty()) {
      const size_t count = random() % 4 == 0 ? random() % (stream.size() + 1) : stream.size();
      const auto end = stream.begin() + static_cast<std::ptrdiff_t>(count);
      append_chunk(pixels, "IDAT", Bytes(stream.begin(), end));
      stream.erase(stream.begin(), end);
    }
    if (random() % 32 != 0) append_chunk(pixels, "IEND", {});
    if (random() % 8 == 0 && !pixels.empty())
      pixels[random() % pixels.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    if (random() % 8 == 0 && pixels.size() > 12)  // the end
      pixels[pixels.size() - 1 - random() % 12] ^= static_cast<uint8_t>(1 << random() % 8);
    gray = type == 0;
  }

  Bytes whole(bool transparent) const {
    Bytes png = head;
    if (transparent) append_chunk(png, "tRNS", gray ? Bytes{0, 1} : Bytes{9});
    png.insert(png.end(), pixels.begin(), pixels.end());
    return png;
  }

  Bytes head{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, pixels;
  bool gray = false;
};

std::optional<Image> decoded(const Bytes& png) {
  try {
    return decode(png, kStored);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

TEST(PlainPng, DoesAsLibpngDoesWithRandomAndDamagedFiles) {
  std::mt19937 random(test::random_seed(5));
  int plain = 0, refused = 0;
  const int cases = test::share_of_cases(3000);
  for (int i = 0; i < cases; ++i) {
    const RandomMask mask(random);
    const Bytes png = mask.whole(false);
    const std::optional<Image> image = decoded(png), expected = decoded(mask.whole(true));
    ASSERT_EQ(image.has_value(), expected.has_value()) << i;
    if (Image directly; decode_plain_png(png, kStored, directly)) {
      ++plain;
      ASSERT_TRUE(expected.has_value()) << i;
      ASSERT_EQ(directly.pixels, expected->pixels) << i;
    }
    if (!image) {
      ++refused;
      continue;
    }
    ASSERT_EQ(image->height, expected->height) << i;
    ASSERT_EQ(image->width, expected->width) << i;
    ASSERT_EQ(image->pixels, expected->pixels) << i;
  }
  EXPECT_GT(plain, cases / 5);
  EXPECT_GT(refused, cases / 5);
}

}  // namespace
}  // namespace sinter::nn::data
