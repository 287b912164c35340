// What is done to training faces at random: each step by hand or against plain loops, and how often each is
// taken.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include <sinter/nn/data/faces/augment.h>

#include "nn/nn_test_support.h"

namespace sinter::nn::data {
namespace {

using nn::testing::message_of;

constexpr int64_t kHeight = 30, kWidth = 24;

Image noise(uint64_t seed, int64_t height = kHeight, int64_t width = kWidth) {
  Image image;
  image.reshape(height, width, 3);
  SampleRandom random(seed, 0, 0);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random.below(256));
  return image;
}

Image grey(uint8_t value) {
  Image image;
  image.reshape(kHeight, kWidth, 3);
  std::ranges::fill(image.pixels, value);
  return image;
}

int at(const Image& image, int64_t y, int64_t x, int64_t c) {
  return image.row(y)[x * image.channels + c];
}

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i)
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  return largest;
}

TEST(FaceAugmentTest, NearestAndBilinearComeBackByHand) {
  Image row;
  row.reshape(1, 4, 1);
  row.pixels = {10, 20, 30, 41};
  Image nearest = row, bilinear = row;
  resize_and_back(nearest, 1, 2, Resampling::kNearest, Resampling::kNearest);
  EXPECT_EQ(nearest.pixels, (std::vector<uint8_t>{20, 20, 41, 41}))
      << "centres lie between pixels, the next is taken";
  // Down: (20 * .5 + 10 * .5, 30 * .5 + 41 * .5) = 15, 36 (35.5 rounded); up: 15, 15 + 21/4, 15 + 63/4, 36.
  resize_and_back(bilinear, 1, 2, Resampling::kBilinear, Resampling::kBilinear);
  EXPECT_EQ(bilinear.pixels, (std::vector<uint8_t>{15, 20, 31, 36}));
}

TEST(FaceAugmentTest, ResizingKeepsTheSizeAndWhatIsSmooth) {
  Image ramp;
  ramp.reshape(kHeight, kWidth, 3);
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        ramp.row(y)[x * 3 + c] = static_cast<uint8_t>(20 + 3 * y + 2 * x + 10 * c);
    }
  }
  for (const Resampling down : {Resampling::kNearest, Resampling::kBilinear, Resampling::kArea}) {
    for (const Resampling up : {Resampling::kNearest, Resampling::kBilinear, Resampling::kArea}) {
      Image image = ramp, flat = grey(77), rough = noise(3);
      resize_and_back(image, 15, 12, down, up);
      EXPECT_EQ(image.height, kHeight);
      EXPECT_EQ(image.width, kWidth);
      EXPECT_LE(largest_difference(image, ramp), 8) << static_cast<int>(down) << static_cast<int>(up);
      resize_and_back(flat, 7, 5, down, up);
      EXPECT_EQ(flat.pixels, grey(77).pixels);
      resize_and_back(rough, 15, 12, down, up);
      EXPECT_GT(largest_difference(rough, noise(3)), 60) << "what is small is gone";
      Image same = noise(4);
      resize_and_back(same, kHeight, kWidth, down, up);
      EXPECT_EQ(same.pixels, noise(4).pixels);
    }
  }
  Image image = noise(1);
  EXPECT_EQ(message_of<InvalidArgument>([&] { resize_and_back(image, 0, 5); }),
            "[resize_and_back] expected sizes of at least 1 x 1 but got 0 x 5 of 30 x 24");
}

TEST(FaceAugmentTest, BlurIsTheSumOverAWindowWithMirroredBorders) {
  const auto mirror = [](int64_t i, int64_t n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; };
  for (const int64_t window : {1, 3, 5}) {
    const double deviation = window == 5 ? 1.1 : 0.8;  // of OpenCV for these windows
    const int64_t reach = window / 2;
    Image image = noise(7);
    const Image before = image;
    gaussian_blur(image, window);
    double total = 0.0;
    for (int64_t i = -reach; i <= reach; ++i) {
      for (int64_t j = -reach; j <= reach; ++j)
        total += std::exp(-static_cast<double>(i * i + j * j) / (2 * deviation * deviation));
    }
    for (int64_t y = 0; y < kHeight; ++y) {
      for (int64_t x = 0; x < kWidth; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          double sum = 0.0;
          for (int64_t i = -reach; i <= reach; ++i) {
            for (int64_t j = -reach; j <= reach; ++j)
              sum += std::exp(-static_cast<double>(i * i + j * j) / (2 * deviation * deviation)) / total *
                     at(before, mirror(y + i, kHeight), mirror(x + j, kWidth), c);
          }
          ASSERT_NEAR(at(image, y, x, c), sum, 0.5 + 1e-6) << y << "," << x << " window " << window;
        }
      }
    }
  }
  Image small = noise(1, 2, 9);
  EXPECT_NO_THROW(gaussian_blur(small, 3));
  for (const int64_t window : {0, -1, 2, 5})
    EXPECT_THROW(gaussian_blur(small, window), InvalidArgument) << window;
}

TEST(FaceAugmentTest, ABoxStaysAndTheRestIsBlack) {
  Image image = noise(2);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(value | 1);  // nowhere black
  const Image before = image;
  keep_box(image, {.top = 3.6, .left = 5.4, .height = 10.2, .width = 7.0});  // rows 4..13, columns 5..11
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      const bool inside = y >= 4 && y < 14 && x >= 5 && x < 12;
      for (int64_t c = 0; c < 3; ++c)
        ASSERT_EQ(at(image, y, x, c), inside ? at(before, y, x, c) : 0) << y << "," << x;
    }
  }
}

Image changed(const TransformPtr& transform, const Image& image, uint64_t sample) {
  Sample faces;
  faces.image = image;
  SampleRandom random(11, 2, sample);
  transform->apply(faces, random);
  return std::move(faces.image);
}

/// Of 4,000 draws the share for which `is` holds lies within four standard deviations of `expected`.
template <class Is>
void expect_share(double expected, const Is& is) {
  constexpr int64_t kDraws = 4000;
  int64_t count = 0;
  for (int64_t i = 0; i < kDraws; ++i) count += is(static_cast<uint64_t>(i)) ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(count) / kDraws, expected,
              4.0 * std::sqrt(expected * (1 - expected) / kDraws));
}

TEST(FaceAugmentTest, InsightfacesIsTakenAsOftenAsItsStepsAre) {
  const TransformPtr transform = insightface_augmentation();
  const Image face = noise(5);
  expect_share(0.9 * 0.8 * 0.8 * 0.9,
               [&](uint64_t i) { return changed(transform, face, i).pixels == face.pixels; });
  // One colour everywhere, which sizes and blurs leave alone.
  Image red = grey(90);
  for (size_t i = 0; i < red.pixels.size(); i += 3) red.pixels[i] = 180;
  expect_share(0.8 * 0.9, [&](uint64_t i) { return changed(transform, red, i).pixels == red.pixels; });
  expect_share(0.1, [&](uint64_t i) {
    const Image image = changed(transform, red, i);
    return image.pixels[0] == image.pixels[1] && image.pixels[1] == image.pixels[2];
  });
  // A hue turned by up to 20 of 360 degrees towards yellow: green rises by up to a third of the way, blue
  // does not.
  for (uint64_t i = 0; i < 300; ++i) {
    const Image image = changed(transform, red, i);
    if (image.pixels[0] == image.pixels[1]) continue;
    ASSERT_GE(image.pixels[1] + 1, image.pixels[2]) << i;
    ASSERT_LE(image.pixels[1] - image.pixels[2], (image.pixels[0] - image.pixels[2]) / 3 + 2) << i;
  }
  // Grey images have no hue, and edges alone show sizes and blurs.
  Image step = grey(40);
  for (int64_t y = 0; y < kHeight; ++y)
    std::fill_n(step.row(y) + kWidth / 2 * 3, kWidth / 2 * 3, uint8_t{200});
  expect_share(1.0 - 0.9 * 0.8,
               [&](uint64_t i) { return changed(transform, step, i).pixels != step.pixels; });
  EXPECT_EQ(changed(transform, face, 7).pixels, changed(transform, face, 7).pixels);
}

TEST(FaceAugmentTest, AdafacesIsTakenAsOftenAsItsStepsAre) {
  const TransformPtr transform = adaface_augmentation();
  const Image face = noise(6), flat = grey(100);
  expect_share(0.8 * 0.8 * 0.8,
               [&](uint64_t i) { return changed(transform, face, i).pixels == face.pixels; });
  // A box that is kept is 0.2 to 1 of the area: the rest is black, whatever light is drawn; sizes blend edges
  // alone.
  std::vector<double> kept;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Image image = changed(transform, flat, i);
    if (std::ranges::count(image.pixels, uint8_t{0}) == 0) continue;
    const auto bright = std::ranges::count_if(image.pixels, [](uint8_t value) { return value > 0; });
    kept.push_back(static_cast<double>(bright) / static_cast<double>(image.pixels.size()));
  }
  EXPECT_NEAR(static_cast<double>(kept.size()) / 4000, 0.2, 0.03);
  EXPECT_GT(std::ranges::min(kept), 0.03) << "some are made small again";
  EXPECT_NEAR(std::accumulate(kept.begin(), kept.end(), 0.0) / static_cast<double>(kept.size()), 0.52, 0.04)
      << "evenly drawn areas, of which the largest seldom fit";
  // A light of 0.5 to 1.5 times, of images that are wholly kept.
  int darkest = 255, brightest = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Image image = changed(transform, flat, i);
    const auto [low, high] = std::ranges::minmax(image.pixels);
    if (low != high) continue;
    darkest = std::min<int>(darkest, low);
    brightest = std::max<int>(brightest, low);
  }
  EXPECT_NEAR(darkest, 50, 2);
  EXPECT_NEAR(brightest, 150, 2);
  EXPECT_EQ(changed(transform, face, 9).pixels, changed(transform, face, 9).pixels);
}

TEST(FaceAugmentTest, GreyImagesAreRefused) {
  Image image;
  image.reshape(4, 4, 1);
  for (const TransformPtr& transform : {insightface_augmentation(), adaface_augmentation()})
    EXPECT_THROW(changed(transform, image, 0), InvalidArgument);
}

}  // namespace
}  // namespace sinter::nn::data
