// Alignment by five points: by hand, against Umeyama's article by NumPy's SVD, and OpenCV's images.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/data/faces/align.h>

#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn::data {
namespace {

using nn::testing::message_of;

// Of FACES: points in a photograph.
constexpr FivePoints kFace = {{{100, 120}, {160, 118}, {130, 160}, {105, 190}, {155, 189}}};

TEST(AlignTest, TheTemplateIsInsightfaces) {
  const FivePoints at_112 = face_template(112);
  EXPECT_EQ(at_112[0].x, 38.2946);
  EXPECT_EQ(at_112[4].y, 92.2041);
  const FivePoints at_224 = face_template(224), at_128 = face_template(128), at_256 = face_template(256);
  EXPECT_EQ(at_224[1].x, 2 * 73.5318);
  EXPECT_EQ(at_224[1].y, 2 * 51.5014);
  EXPECT_EQ(at_128[2].x, 56.0252 + 8);
  EXPECT_EQ(at_128[2].y, 71.7366);
  EXPECT_EQ(at_256[3].x, 2 * (41.5493 + 8));
  EXPECT_EQ(face_template(896)[0].x, 8 * 38.2946) << "of 112 and 128, 112 goes first";
  for (const int64_t size : {0, -112, 100, 113})
    EXPECT_EQ(message_of<InvalidArgument>([&] { face_template(size); }),
              "[align] expected a multiple of 112 or 128 pixels but got " + std::to_string(size));
}

TEST(AlignTest, TheSimilarityOfAFaceByHand) {
  const FivePoints to = face_template(112);
  const Similarity move = nearest_similarity(kFace, to);
  EXPECT_NEAR(move.a, .5782341, 5e-8);
  EXPECT_NEAR(move.b, .0029804, 5e-8);
  EXPECT_NEAR(move.tx, -18.681121, 5e-7);
  EXPECT_NEAR(move.ty, -18.344253, 5e-7);
  EXPECT_NEAR(rms_distance(move, kFace, to), 1.462, 5e-4);
  // Points that are the template's stay where they are.
  const Similarity none = nearest_similarity(to, to);
  EXPECT_NEAR(none.a, 1.0, 1e-12);
  EXPECT_NEAR(none.b, 0.0, 1e-12);
  EXPECT_NEAR(none.tx, 0.0, 1e-10);
  EXPECT_EQ(refusal_of(kFace), nullptr);
}

TEST(AlignTest, TheClosedFormIsUmeyamas) {
  const auto stored = read_safetensors(test::test_data() / "reference/alignment.safetensors")
                          .tensor("similarities")
                          .to_vector<double>();
  const auto points =
      sinter::testing::reference_values("align.points", {200, 5, 2}, {.scale = 64.0, .base = 64.0})
          .to_vector<float>();
  const FivePoints to = face_template(112);
  int mirrored = 0;
  for (size_t draw = 0; draw < 200; ++draw) {
    FivePoints from;
    for (size_t i = 0; i < 5; ++i)
      from[i] = {static_cast<double>(points[10 * draw + 2 * i]),
                 static_cast<double>(points[10 * draw + 2 * i + 1])};
    const Similarity move = nearest_similarity(from, to);
    const double* expected = &stored[4 * draw];
    EXPECT_NEAR(move.a, expected[0], 1e-9) << draw;
    EXPECT_NEAR(move.b, expected[1], 1e-9) << draw;
    EXPECT_NEAR(move.tx, expected[2], 1e-6) << draw;
    EXPECT_NEAR(move.ty, expected[3], 1e-6) << draw;
    mirrored += refusal_of(from) != nullptr ? 1 : 0;
    // No other similarity nearby brings them closer.
    const double best = rms_distance(move, from, to);
    for (const double step : {-1e-3, 1e-3}) {
      EXPECT_GT(rms_distance({move.a + step, move.b, move.tx, move.ty}, from, to), best);
      EXPECT_GT(rms_distance({move.a, move.b + step, move.tx, move.ty}, from, to), best);
      EXPECT_GT(rms_distance({move.a, move.b, move.tx + step, move.ty}, from, to), best);
      EXPECT_GT(rms_distance({move.a, move.b, move.tx, move.ty + step}, from, to), best);
    }
  }
  EXPECT_GT(mirrored, 50);  // of points at random, half are
  EXPECT_LT(mirrored, 150);
}

TEST(AlignTest, EqualPointsAndMirroredOrderAreRefused) {
  FivePoints equal = kFace;
  equal[4] = equal[3];
  EXPECT_STREQ(refusal_of(equal), "two points are the same");
  // Left and right as the person has them, and a photograph that is mirrored itself.
  const FivePoints swapped = {kFace[1], kFace[0], kFace[2], kFace[4], kFace[3]};
  EXPECT_STREQ(refusal_of(swapped), "left and right are mirrored");
  FivePoints photograph = kFace;
  for (Point& point : photograph) point.x = 300 - point.x;
  EXPECT_STREQ(refusal_of(photograph), "left and right are mirrored");
  // A face that is turned, upside down too, is fine.
  for (int degrees = 0; degrees < 360; degrees += 15) {
    const double turn = degrees * 3.14159265358979 / 180;
    const Similarity move{2 * std::cos(turn), 2 * std::sin(turn), 50, -20};
    FivePoints turned;
    std::ranges::transform(kFace, turned.begin(), move);
    EXPECT_EQ(refusal_of(turned), nullptr) << degrees;
    EXPECT_NEAR(rms_distance(nearest_similarity(turned, face_template(112)), turned, face_template(112)),
                1.462, 5e-4);
  }
  Image image, out;
  image.reshape(8, 8, 3);
  EXPECT_EQ(message_of<InvalidArgument>([&] { align_face(image, swapped, 112, out); }),
            "[align] left and right are mirrored");
}

TEST(AlignTest, FiveOfSixtyEight) {
  std::array<Point, 68> points;
  for (size_t i = 0; i < 68; ++i) points[i] = {static_cast<double>(i), static_cast<double>(1000 + i * i)};
  const FivePoints five = five_of_68(points);
  EXPECT_EQ(five[0].x, 37.5);
  EXPECT_EQ(five[1].x, 43.5);
  EXPECT_EQ(five[1].y, 1000 + (42 * 42 + 45 * 45) / 2.0);
  EXPECT_EQ(five[2].x, 30);
  EXPECT_EQ(five[3].x, 48);
  EXPECT_EQ(five[4].x, 54);
}

Image reference_picture(const std::string& name, int64_t height, int64_t width, int64_t channels) {
  Image image;
  image.reshape(height, width, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(
        sinter::testing::reference_word(sinter::testing::reference_seed(name), static_cast<int64_t>(i)));
  }
  return image;
}

TEST(AlignTest, ImagesAreMovedToTheSameBytesAsByOpenCv) {
  const auto file = read_safetensors(test::test_data() / "reference/alignment.safetensors");
  const auto moves = file.tensor("moves").to_vector<double>();
  for (const auto& [name, height, width, channels] :
       {std::tuple<const char*, int64_t, int64_t, int64_t>{"colours", 50, 60, 3}, {"grey", 33, 21, 1}}) {
    const Image image = reference_picture(std::string("align.") + name, height, width, channels);
    const auto expected = file.tensor(name).to_vector<uint8_t>();
    Image out;
    for (size_t i = 0; i < 12; ++i) {
      const double* m = &moves[4 * i];
      move_image(image, {m[0], m[1], m[2], m[3]}, 24, 32, out);
      const auto from = expected.begin() + static_cast<int64_t>(i * out.pixels.size());
      EXPECT_TRUE(std::equal(out.pixels.begin(), out.pixels.end(), from)) << name << " " << i;
    }
  }
}

TEST(AlignTest, BilinearBetweenFourPixelsAndBlackOutside) {
  // Exact bilinear sampling, from places rounded to 1/32: each count of difference to the exact place is at
  // most 1/64 pixel times the differences of neighbours, 255 across and 255 down.
  const Image image = reference_picture("align.colours", 50, 60, 3);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Generator random(seed);
    const double angle = 6.28 * random.uniform(), size = 0.5 + random.uniform();
    const Similarity move{size * std::cos(angle), size * std::sin(angle), 40 * random.uniform(),
                          40 * random.uniform()};
    Image out;
    move_image(image, move, 20, 20, out);
    const double squares = move.a * move.a + move.b * move.b;
    for (int64_t y = 0; y < 20; ++y) {
      for (int64_t x = 0; x < 20; ++x) {
        const double dx = static_cast<double>(x) - move.tx, dy = static_cast<double>(y) - move.ty;
        const double from_x = (move.a * dx + move.b * dy) / squares,
                     from_y = (move.a * dy - move.b * dx) / squares;
        for (int64_t c = 0; c < 3; ++c) {
          double value = 0.0;
          for (int64_t j = 0; j < 2; ++j) {
            for (int64_t i = 0; i < 2; ++i) {
              const auto px = static_cast<int64_t>(std::floor(from_x)) + i,
                         py = static_cast<int64_t>(std::floor(from_y)) + j;
              if (px < 0 || py < 0 || px >= 60 || py >= 50) continue;
              value += (1 - std::abs(from_x - static_cast<double>(px))) *
                       (1 - std::abs(from_y - static_cast<double>(py))) *
                       static_cast<double>(image.row(py)[3 * px + c]);
            }
          }
          ASSERT_NEAR(static_cast<double>(out.row(y)[3 * x + c]), value, 510.0 / 64 + 1) << seed;
        }
      }
    }
  }
}

TEST(AlignTest, WhatCannotBeIsRefused) {
  Image image, out;
  image.reshape(4, 4, 3);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              move_image(image, {0, 0, 1, 1}, 4, 4, out);
            }),
            "[align] expected a similarity with an inverse but got a 0, b 0, tx 1, ty 1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { move_image({}, {}, 4, 4, out); }),
            "[align] expected images of a size > 0 but got 0 x 0 to 4 x 4");
  const std::vector<Point> same(3, Point{2, 3});
  EXPECT_EQ(message_of<InvalidArgument>([&] { nearest_similarity(same, same); }),
            "[align] expected points at different places but all 3 are at (2, 3)");
  EXPECT_EQ(message_of<InvalidArgument>([&] { nearest_similarity(same, std::span(same).first(2)); }),
            "[align] expected as many points of both, at least one, but got 3 and 2");
  image.pixels.assign(image.pixels.size(), 200);
  move_image(image, {1e-100, 0, 0, 0}, 4, 4, out);  // places beyond all integers are outside
  EXPECT_EQ(std::accumulate(out.pixels.begin() + 3, out.pixels.end(), 0), 0);
}

}  // namespace
}  // namespace sinter::nn::data
