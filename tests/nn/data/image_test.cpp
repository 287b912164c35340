// JPEG, EXIF, PGM/PPM and resampling, against pixels that Pillow read and against first principles.
#include <cmath>
#include <random>
#include <string_view>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/exif.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/jpeg.h>
#include <sinter/nn/data/image/netpbm.h>
#include <sinter/nn/data/image/resize.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using testing::Bytes;
using testing::load_picture;
using testing::message_of;

Image decode(const Bytes& bytes, const DecodeOptions& options = {},
             const DecodeHintFunction& reduction = {}) {
  Image image;
  decode_image(bytes, "picture", options, reduction, image);
  return image;
}

Image reference(const std::string& name) {
  return decode(load_picture(name), {.channels = name.ends_with("pgm") ? 1 : 3});
}

// The largest difference of any value; 1000 if the sizes differ.
int distance(const Image& a, const Image& b) {
  if (a.height != b.height || a.width != b.width || a.channels != b.channels) return 1000;
  int most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) most = std::max(most, std::abs(a.pixels[i] - b.pixels[i]));
  return most;
}

Bytes text(std::string_view chars) {
  return Bytes(chars.begin(), chars.end());
}

TEST(Jpeg, AgreesWithPillow) {
  // Versions of libjpeg-turbo may round by one.
  for (const std::string name : {"rgb", "progressive", "cmyk", "ycck"}) {
    EXPECT_LE(distance(decode(load_picture(name + ".jpg")), reference(name + ".ppm")), 1) << name;
  }
  EXPECT_LE(distance(decode(load_picture("gray.jpg"), {.channels = 1}), reference("gray.pgm")), 1);
  EXPECT_LE(distance(decode(load_picture("rgb.jpg"), {.channels = 1}), reference("luma.pgm")), 1);
}

TEST(Jpeg, KeepsThePictureItWasMadeFrom) {
  const Image image = decode(load_picture("rgb.jpg"));
  ASSERT_EQ(image.height, 24);
  ASSERT_EQ(image.width, 40);
  ASSERT_EQ(image.channels, 3);
  for (int y = 0; y < 24; ++y) {
    for (int x = 0; x < 40; ++x) {
      EXPECT_NEAR(image.row(y)[3 * x], x * 255 / 39, 12) << y << ", " << x;
      EXPECT_NEAR(image.row(y)[3 * x + 1], y * 255 / 23, 12) << y << ", " << x;
    }
  }
}

TEST(Jpeg, ConvertsBetweenGrayAndColour) {
  const Image gray = decode(load_picture("gray.jpg"), {.channels = 1});
  Image spread = gray;
  convert_channels(spread, 3);
  EXPECT_EQ(distance(decode(load_picture("gray.jpg")), spread), 0);
  const Image cmyk = decode(load_picture("cmyk.jpg"), {.channels = 1});
  Image expected = reference("cmyk.ppm");
  convert_channels(expected, 1);
  EXPECT_LE(distance(cmyk, expected), 1);
}

TEST(Jpeg, TurnsEveryOrientationUpright) {
  const Image upright = decode(load_picture("orientation_1.jpg"));
  ASSERT_EQ(upright.height, 24);
  ASSERT_EQ(upright.width, 40);
  for (int orientation = 2; orientation <= 8; ++orientation) {
    const Bytes bytes = load_picture("orientation_" + std::to_string(orientation) + ".jpg");
    EXPECT_LE(distance(decode(bytes), upright), 4) << orientation;
    const Image stored = decode(bytes, {.apply_orientation = false});
    EXPECT_EQ(stored.height, orientation >= 5 ? 40 : 24) << orientation;
    EXPECT_GT(distance(stored, upright), 100) << orientation;
  }
}

TEST(Jpeg, DecodesAtReducedSizes) {
  const Image half = decode(load_picture("rgb.jpg"), {}, [](int64_t height, int64_t width) {
    EXPECT_EQ(height, 24);
    EXPECT_EQ(width, 40);
    return 2;
  });
  EXPECT_LE(distance(half, reference("half.ppm")), 1);
  const Image eighth = decode(load_picture("orientation_6.jpg"), {}, [](int64_t height, int64_t width) {
    EXPECT_EQ(height, 24);  // asked about the upright image
    EXPECT_EQ(width, 40);
    return 8;
  });
  EXPECT_EQ(eighth.height, 3);
  EXPECT_EQ(eighth.width, 5);
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { decode(load_picture("rgb.jpg"), {}, [](int64_t, int64_t) { return 3; }); }),
            "[jpeg] expected a reduction of 1, 2, 4 or 8 but got 3");
}

TEST(Jpeg, RefusesEveryTruncation) {
  for (const char* name : {"rgb.jpg", "progressive.jpg", "gray.jpg", "cmyk.jpg", "orientation_6.jpg"}) {
    const Bytes whole = load_picture(name);
    for (size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(decode(cut), IoError) << name << " cut to " << size;
    }
  }
  Bytes half = load_picture("rgb.jpg");
  half.resize(half.size() - 100);
  EXPECT_EQ(message_of<IoError>([&] { decode(half); }),
            "[jpeg] picture: damaged or no JPEG: Premature end of JPEG file");
}

TEST(Jpeg, OddMetadataIsNoDamageButWhatIsLeftOfAScanIs) {
  const auto position = [](Bytes& bytes, std::initializer_list<uint8_t> marker) {
    return std::search(bytes.begin(), bytes.end(), marker.begin(), marker.end());
  };
  const Bytes whole = load_picture("rgb.jpg");
  const std::vector<uint8_t> pixels = decode(whole).pixels;
  Bytes version = whole;
  *(position(version, {'J', 'F', 'I', 'F', 0}) + 5) = 9;
  EXPECT_EQ(decode(version).pixels, pixels);
  Bytes between = whole;
  between.insert(position(between, {0xFF, 0xDB}), {1, 2, 3});  // before the tables
  EXPECT_EQ(decode(between).pixels, pixels);
  Bytes spectral = whole;
  const auto scan = position(spectral, {0xFF, 0xDA});
  *(scan + scan[3]) = 5;  // the last coefficient of the scan, of 0 to 63
  EXPECT_EQ(decode(spectral).pixels, pixels);
  Bytes behind = whole;
  behind.insert(behind.end() - 2, 40, 1);  // between the pixels and the end
  EXPECT_TRUE(message_of<IoError>([&] { decode(behind); }).ends_with("extraneous bytes before marker 0xd9"));
}

TEST(Jpeg, SurvivesFlippedBits) {
  std::mt19937 random(7);
  for (const char* name : {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "orientation_5.jpg"}) {
    const Bytes whole = load_picture(name);
    for (int i = 0; i < 400; ++i) {
      Bytes bytes = whole;
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1u << random() % 8);
      try {
        decode(bytes, {.max_pixels = 1 << 20});
      } catch (const IoError&) {  // most flips are damage, some are other pixels
      }
    }
  }
}

TEST(Jpeg, KeepsItsLimits) {
  EXPECT_EQ(message_of<IoError>([] { decode(load_picture("rgb.jpg"), {.max_pixels = 959}); }),
            "[jpeg] picture: expected at most 959 pixels but the image has 24 x 40");
  EXPECT_NO_THROW(decode(load_picture("rgb.jpg"), {.max_pixels = 960}));
  EXPECT_EQ(message_of<IoError>([] { decode(load_picture("progressive.jpg"), {.max_scans = 5}); }),
            "[jpeg] picture: damaged or no JPEG: more than 5 scans");
  EXPECT_NO_THROW(decode(load_picture("progressive.jpg"), {.max_scans = 10}));
  EXPECT_EQ(message_of<InvalidArgument>([] { decode(load_picture("rgb.jpg"), {.channels = 2}); }),
            "[jpeg] expected 1 or 3 channels but got 2");
}

TEST(Jpeg, RefusesOtherFiles) {
  EXPECT_EQ(message_of<IoError>([] { decode(text("\x89PNG\r\n")); }),
            "[image] picture: expected a JPEG, PNG, WebP, PGM (P5) or PPM (P6) file but its first bytes are "
            "of none");
  EXPECT_EQ(message_of<IoError>([] { decode({}); }),
            "[image] picture: expected a JPEG, PNG, WebP, PGM (P5) or PPM (P6) file but its first bytes are "
            "of none");
}

Bytes exif(std::string_view tiff) {
  std::string payload("Exif\0\0", 6);
  payload += tiff;
  return text(payload);
}

TEST(Exif, ReadsBothByteOrders) {
  using namespace std::string_view_literals;
  EXPECT_EQ(exif_orientation(exif("II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"sv)), 6);
  EXPECT_EQ(exif_orientation(exif("MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0\x8\0\0\0\0\0\0"sv)), 8);
  // Behind another entry, and with a directory that is not where the header ends.
  EXPECT_EQ(exif_orientation(
                exif("II*\0\xa\0\0\0\xff\xff\2\0\1\1\3\0\1\0\0\0\7\0\0\0\x12\1\3\0\1\0\0\0\3\0\0\0"sv)),
            3);
}

TEST(Exif, TakesDamageAsUpright) {
  using namespace std::string_view_literals;
  const Bytes good = exif("II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"sv);
  ASSERT_EQ(exif_orientation(good), 6);
  for (size_t size = 0; size < good.size() - 2; ++size) {
    EXPECT_EQ(exif_orientation(std::span(good).first(size)), 1) << size;
  }
  EXPECT_EQ(exif_orientation(exif("II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0\x9\0\0\0"sv)),
            1);  // no such orientation
  EXPECT_EQ(exif_orientation(exif("II*\0\x8\0\0\0\1\0\x12\1\4\0\1\0\0\0\6\0\0\0"sv)), 1);  // of another type
  EXPECT_EQ(exif_orientation(exif("II*\0\xff\xff\xff\xff\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"sv)),
            1);  // far outside
  EXPECT_EQ(exif_orientation(exif("IM*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"sv)), 1);
}

TEST(Netpbm, ReadsGrayAndColour) {
  const Image gray = decode(text("P5 # a comment\n3\t2\n255\nabcdef"), {.channels = 1});
  EXPECT_EQ(gray.height, 2);
  EXPECT_EQ(gray.width, 3);
  EXPECT_EQ(gray.pixels, text("abcdef"));
  EXPECT_EQ(decode(text("P6\n1 2\n255\nabcdef")).pixels, text("abcdef"));
  EXPECT_EQ(decode(text("P5 2 1 255 az")).pixels, text("aaazzz"));
  EXPECT_EQ(decode({'P', '5', ' ', '3', ' ', '1', ' ', '4', ' ', 0, 2, 4}, {.channels = 1}).pixels,
            (Bytes{0, 128, 255}));
}

TEST(Netpbm, RefusesDamage) {
  const auto error = [](std::string_view chars, int64_t max_pixels = 1000) {
    return message_of<IoError>([&] { decode(text(chars), {.max_pixels = max_pixels}); });
  };
  EXPECT_EQ(error("P5 3 2 255 abcde"),
            "[netpbm] picture: expected 6 bytes for 2 x 3 x 1 pixels from byte 11 on but the file has 5");
  EXPECT_EQ(error("P5 3 2 255 abcdefg"),
            "[netpbm] picture: expected 6 bytes for 2 x 3 x 1 pixels from byte 11 on but the file has 7");
  EXPECT_EQ(error("P5 0 2 255 "), "[netpbm] picture: expected a width from 1 to 1048576 at byte 3");
  EXPECT_EQ(error("P5 3 99999999999999999999 255 a"),
            "[netpbm] picture: expected a height from 1 to 1048576 at byte 5");
  EXPECT_EQ(error("P5 3 2 65535 abcdef"),
            "[netpbm] picture: expected a maximum value from 1 to 255 at byte 7");
  EXPECT_EQ(error("P5 3 2 255"), "[netpbm] picture: expected white space after the header at byte 10");
  EXPECT_EQ(error("P5 #"), "[netpbm] picture: expected a width from 1 to 1048576 at byte 4");
  EXPECT_EQ(error("P5 3 1 100 aze"), "[netpbm] picture: expected values up to 100 but got 122 at byte 12");
  EXPECT_EQ(error("P5 3 2 255 abcdef", 5),
            "[netpbm] picture: expected at most 5 pixels but the image has 2 x 3");
}

TEST(Resize, AgreesWithPillow) {
  const Image image = reference("rgb.ppm");
  Image out;
  resize(image, 11, 17, out);
  EXPECT_LE(distance(out, reference("resized_11x17.ppm")), 1);
  resize(image, 27, 50, out);
  EXPECT_LE(distance(out, reference("resized_27x50.ppm")), 1);
  resize(image, {2, 5, 18.25, 28.5}, 9, 7, out);
  EXPECT_LE(distance(out, reference("box_9x7.ppm")), 1);
}

TEST(Resize, AgreesWithPillowBicubically) {
  const Image image = reference("rgb.ppm");
  Image out, bilinear;
  resize(image, 11, 17, out, ResizeFilter::kBicubic);
  EXPECT_LE(distance(out, reference("cubic_11x17.ppm")), 1);
  resize(image, 27, 50, out, ResizeFilter::kBicubic);
  EXPECT_LE(distance(out, reference("cubic_27x50.ppm")), 1);
  resize(image, {2, 5, 18.25, 28.5}, 9, 7, out, ResizeFilter::kBicubic);
  EXPECT_LE(distance(out, reference("cubic_box_9x7.ppm")), 1);
  Image bars;
  bars.reshape(6, 16, 1);
  for (size_t i = 0; i < bars.pixels.size(); ++i) bars.pixels[i] = i % 8 < 4 ? 0 : 255;
  resize(bars, 9, 43, out, ResizeFilter::kBicubic);
  EXPECT_LE(distance(out, reference("cubic_bars.pgm")), 1);
  resize(bars, 9, 43, bilinear);
  EXPECT_GT(distance(out, bilinear), 10);
}

TEST(Resize, KeepsConstantsAndIdentity) {
  const Image image = reference("rgb.ppm");
  Image out;
  resize(image, 24, 40, out);
  EXPECT_EQ(distance(out, image), 0);
  Image flat;
  flat.reshape(9, 5, 1);
  std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t{201});
  for (const int64_t side : {1, 2, 3, 7, 40}) {
    resize(flat, side, side + 1, out, side % 2 == 0 ? ResizeFilter::kBicubic : ResizeFilter::kBilinear);
    EXPECT_EQ(out.pixels, Bytes(static_cast<size_t>(side * (side + 1)), 201)) << side;
  }
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              resize(flat, {0, 1, 9, 5}, 2, 2, out);
            }),
            "[resize] expected a box inside the 9 x 5 image but got 9 x 5 at (0, 1)");
}

TEST(ImageOps, CropFlipAndOrient) {
  Image image;
  image.reshape(2, 3, 1);
  image.pixels = {1, 2, 3, 4, 5, 6};
  Image out;
  crop(image, 0, 1, 2, 2, out);
  EXPECT_EQ(out.pixels, (Bytes{2, 3, 5, 6}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { crop(image, 1, 1, 2, 2, out); }),
            "[image] expected a window inside the 2 x 3 image but got 2 x 2 at (1, 1)");
  flip_horizontal(image);
  EXPECT_EQ(image.pixels, (Bytes{3, 2, 1, 6, 5, 4}));
  orient(image, 6);  // stored turned anticlockwise, so it turns clockwise
  EXPECT_EQ(image.height, 3);
  EXPECT_EQ(image.pixels, (Bytes{6, 3, 5, 2, 4, 1}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { orient(image, 9); }),
            "[image] expected an EXIF orientation from 1 to 8 but got 9");
}

}  // namespace
}  // namespace sinter::nn::data
