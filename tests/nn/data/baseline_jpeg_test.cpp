// Which JPEGs are left to decoders in hardware, told by their markers.
#include <algorithm>
#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/data/image/baseline_jpeg.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/image/jpeg.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using testing::Bytes;
using testing::load_picture;

bool is_plain(const Bytes& bytes) {
  return read_baseline_jpeg(bytes).has_value();
}

/// Where the first segment of a kind begins, at its 0xff.
size_t find_marker(const Bytes& bytes, uint8_t marker) {
  size_t at = 2;
  while (bytes.at(at + 1) != marker) at += 2 + static_cast<size_t>(bytes.at(at + 2) << 8 | bytes.at(at + 3));
  return at;
}

size_t end_of_segment(const Bytes& bytes, size_t at) {
  return at + 2 + static_cast<size_t>(bytes.at(at + 2) << 8 | bytes.at(at + 3));
}

Bytes with_inserted(Bytes bytes, size_t at, std::initializer_list<uint8_t> what) {
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), what);
  return bytes;
}

Bytes with_byte(Bytes bytes, size_t at, int value) {
  bytes.at(at) = static_cast<uint8_t>(value);
  return bytes;
}

TEST(BaselineJpeg, KnowsPlainFilesAndTheirSizes) {
  const auto rgb = read_baseline_jpeg(load_picture("rgb.jpg"));
  ASSERT_TRUE(rgb);
  EXPECT_EQ(rgb->height, 24);
  EXPECT_EQ(rgb->width, 40);
  EXPECT_EQ(rgb->orientation, 1);
  EXPECT_EQ(rgb->components, 3);
  const auto gray = read_baseline_jpeg(load_picture("gray.jpg"));
  ASSERT_TRUE(gray);
  EXPECT_EQ(gray->height, 24);
  EXPECT_EQ(gray->width, 40);
  EXPECT_EQ(gray->components, 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto turned =
        read_baseline_jpeg(load_picture("orientation_" + std::to_string(orientation) + ".jpg"));
    ASSERT_TRUE(turned) << orientation;
    EXPECT_EQ(turned->orientation, orientation);
    EXPECT_EQ(turned->height, orientation >= 5 ? 40 : 24);
  }
  Image image;
  for (const int64_t side : {1, 7, 16, 17, 100}) {
    image.reshape(side, 2 * side + 1, 3);
    for (size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<uint8_t>(philox(1, i).words[0]);
    Bytes bytes;
    encode_jpeg(image, 90, bytes);
    const auto read = read_baseline_jpeg(bytes);
    ASSERT_TRUE(read) << side;
    EXPECT_EQ(read->height, image.height);
    EXPECT_EQ(read->width, image.width);
  }
}

TEST(BaselineJpeg, LeavesOtherKinds) {
  for (const char* name : {"progressive.jpg", "cmyk.jpg", "ycck.jpg", "rgb.ppm"})
    EXPECT_FALSE(is_plain(load_picture(name))) << name;
  const Bytes rgb = load_picture("rgb.jpg");
  const size_t frame = find_marker(rgb, 0xC0);
  EXPECT_FALSE(is_plain(with_byte(rgb, frame + 1, 0xC1))) << "extended";
  EXPECT_FALSE(is_plain(with_byte(rgb, frame + 4, 12))) << "12 bits";
  for (const int sampling : {0x41, 0x14, 0x33, 0x02})
    EXPECT_FALSE(is_plain(with_byte(rgb, frame + 11, sampling))) << sampling;
  EXPECT_FALSE(is_plain(with_byte(rgb, frame + 14, 0x22))) << "chroma of full size by other factors";
  EXPECT_FALSE(is_plain(with_byte(with_byte(rgb, frame + 5, 0), frame + 6, 0))) << "no height yet";
  EXPECT_FALSE(is_plain(with_byte(rgb, frame + 12, 3))) << "no such table";
  const Bytes gray = load_picture("gray.jpg");
  EXPECT_FALSE(is_plain(with_byte(gray, find_marker(gray, 0xC0) + 11, 0x22))) << "gray in blocks of four";
  EXPECT_FALSE(is_plain(with_byte(gray, find_marker(gray, 0xC0) + 9, 2))) << "two components";
  const size_t scan = find_marker(rgb, 0xDA);
  EXPECT_FALSE(is_plain(with_byte(rgb, scan + 6, 0x22))) << "no such table";
  EXPECT_FALSE(is_plain(with_byte(rgb, scan + 5, 9))) << "no such component";
  EXPECT_FALSE(is_plain(with_byte(rgb, scan + 12, 5))) << "a part of the spectrum";
}

TEST(BaselineJpeg, TellsColoursAsLibjpegDoes) {
  const Bytes rgb = load_picture("rgb.jpg");
  const auto adobe = [&](uint8_t transform) {
    return with_inserted(rgb, find_marker(rgb, 0xDB),
                         {0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, transform});
  };
  EXPECT_TRUE(is_plain(adobe(1)));
  EXPECT_FALSE(is_plain(adobe(0)));
  // Without a marker that says so, the components' numbers do.
  Bytes bare = rgb;
  const size_t jfif = find_marker(bare, 0xE0);
  bare.erase(bare.begin() + static_cast<std::ptrdiff_t>(jfif),
             bare.begin() + static_cast<std::ptrdiff_t>(end_of_segment(bare, jfif)));
  EXPECT_TRUE(is_plain(bare));
  const size_t frame = find_marker(bare, 0xC0), scan = find_marker(bare, 0xDA);
  for (size_t i = 0; i < 3; ++i)
    bare[frame + 10 + 3 * i] = bare[scan + 5 + 2 * i] = static_cast<uint8_t>("RGB"[i]);
  EXPECT_FALSE(is_plain(bare));
}

TEST(BaselineJpeg, LeavesWhatIsCutOrHasForeignMarkers) {
  const Bytes rgb = load_picture("rgb.jpg");
  for (size_t size = 0; size < rgb.size(); ++size)
    EXPECT_FALSE(is_plain(Bytes(rgb.begin(), rgb.begin() + static_cast<std::ptrdiff_t>(size)))) << size;
  EXPECT_TRUE(is_plain(with_inserted(rgb, rgb.size(), {1, 2, 3}))) << "what follows the end is passed over";
  EXPECT_TRUE(is_plain(with_inserted(rgb, find_marker(rgb, 0xDB), {0xFF, 0xFF}))) << "fill bytes";
  const size_t inside = end_of_segment(rgb, find_marker(rgb, 0xDA)) + 20;
  for (const int marker : {0xC4, 0xD0, 0xD8, 0xDA, 0xDC, 0xFF, 1})
    EXPECT_FALSE(is_plain(with_inserted(rgb, inside, {0xFF, static_cast<uint8_t>(marker)}))) << marker;
  EXPECT_TRUE(is_plain(with_inserted(rgb, inside, {0xFF, 0})));
}

TEST(BaselineJpeg, CountsRestartMarkers) {
  const Bytes rgb = load_picture("rgb.jpg");  // six blocks of 16 x 16
  const auto interval = [&](uint8_t blocks) {
    return with_inserted(rgb, find_marker(rgb, 0xDA), {0xFF, 0xDD, 0, 4, 0, blocks});
  };
  const size_t inside = end_of_segment(interval(3), find_marker(interval(3), 0xDA)) + 20;
  EXPECT_TRUE(is_plain(interval(6)));
  EXPECT_TRUE(is_plain(interval(0)));
  EXPECT_FALSE(is_plain(interval(3)));
  EXPECT_TRUE(is_plain(with_inserted(interval(3), inside, {0xFF, 0xD0})));
  EXPECT_FALSE(is_plain(with_inserted(interval(3), inside, {0xFF, 0xD1})));
  EXPECT_FALSE(is_plain(with_inserted(interval(3), inside, {0xFF, 0xD0, 0xFF, 0xD1})));
  EXPECT_TRUE(is_plain(with_inserted(interval(2), inside, {0xFF, 0xD0, 0xFF, 0xD1})));
}

TEST(BaselineJpeg, AgreesWithTheDecoderOnAnyBytes) {
  const Bytes rgb = load_picture("orientation_6.jpg");
  int plain = 0;
  for (uint64_t trial = 0; trial < 4000; ++trial) {
    Bytes bytes = rgb;
    for (uint64_t change = 0; change <= trial % 3; ++change) {
      const PhiloxBlock random = philox(trial, change);
      bytes[random.words[0] % bytes.size()] = static_cast<uint8_t>(random.words[1]);
    }
    const auto jpeg = read_baseline_jpeg(bytes);
    if (!jpeg) continue;
    ++plain;
    Image image;
    try {
      decode_jpeg(bytes, "", {.apply_orientation = false, .max_pixels = 1 << 20}, {}, image);
    } catch (const IoError&) {
      continue;  // damage inside the coded data
    }
    EXPECT_EQ(image.height, jpeg->height) << trial;
    EXPECT_EQ(image.width, jpeg->width) << trial;
  }
  EXPECT_GT(plain, 400);
}

}  // namespace
}  // namespace sinter::nn::data
