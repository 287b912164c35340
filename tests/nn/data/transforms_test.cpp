// Transforms and normalisation: what they do to pixels, what they draw, what they refuse.
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/data/transforms.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using testing::Bytes;
using testing::message_of;

// Value y * width + x + 1 at (y, x), so that 0 is only padding.
Image numbered(int64_t height, int64_t width, int64_t channels = 1) {
  Image image;
  image.reshape(height, width, channels);
  for (int64_t i = 0; i < height * width; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      image.pixels[static_cast<size_t>(i * channels + c)] = static_cast<uint8_t>(i + 1 + 50 * c);
    }
  }
  return image;
}

Image transformed(const std::shared_ptr<const Transform>& transform, Image image, uint64_t sample = 0,
                  int64_t epoch = 0) {
  SampleRandom random(1, epoch, sample);
  Sample whole{.image = std::move(image)};
  transform->apply(whole, random);
  return whole.image;
}

TEST(SampleRandom, StreamsAreApart) {
  std::set<uint32_t> words;
  for (uint64_t seed : {0u, 1u}) {
    for (int64_t epoch : {0, 1, 2}) {
      for (uint64_t sample : {uint64_t{0}, uint64_t{1}, SampleRandom::kShuffle}) {
        SampleRandom random(seed, epoch, sample);
        for (int i = 0; i < 9; ++i) words.insert(random.word());
      }
    }
  }
  EXPECT_EQ(words.size(), 2u * 3 * 3 * 9);
}

TEST(SampleRandom, BelowIsEven) {
  SampleRandom random(3, 0, 0);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < 90'000; ++i) ++counts[random.below(9)];
  ASSERT_EQ(counts.size(), 9u);
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 10'000, 500) << value;  // 5 deviations
}

TEST(Transforms, RandomCropDrawsEveryPlaceEvenly) {
  for (const ops::PadMode mode : {ops::PadMode::kConstant, ops::PadMode::kReflect}) {
    std::map<std::string, int> seen;
    const auto key = [](const Bytes& pixels) { return std::string(pixels.begin(), pixels.end()); };
    for (uint64_t sample = 0; sample < 9'000; ++sample) {
      ++seen[key(transformed(random_crop(3, {.padding = 1, .mode = mode}), numbered(3, 3), sample).pixels)];
    }
    ASSERT_EQ(seen.size(), 9u);
    for (const auto& [pixels, count] : seen) EXPECT_NEAR(count, 1'000, 150);
    const Bytes down_right =
        mode == ops::PadMode::kConstant ? Bytes{0, 0, 0, 0, 1, 2, 0, 4, 5} : Bytes{5, 4, 5, 2, 1, 2, 5, 4, 5};
    const Bytes up =
        mode == ops::PadMode::kConstant ? Bytes{4, 5, 6, 7, 8, 9, 0, 0, 0} : Bytes{4, 5, 6, 7, 8, 9, 4, 5, 6};
    EXPECT_TRUE(seen.contains(key(down_right)));
    EXPECT_TRUE(seen.contains(key(up)));
    EXPECT_TRUE(seen.contains(key(numbered(3, 3).pixels)));
  }
  EXPECT_EQ(
      message_of<InvalidArgument>([] {
        transformed(random_crop({3, 9}, {.padding = 3, .mode = ops::PadMode::kReflect}), numbered(3, 9));
      }),
      "[random_crop] expected an image larger than the padding 3 but got 3 x 9");
  EXPECT_EQ(message_of<InvalidArgument>([] { transformed(random_crop(6, {.padding = 1}), numbered(3, 9)); }),
            "[random_crop] expected an image of at least 6 x 6 with its padding but got 5 x 11");
  // Padding beyond the image leaves it black, and in bounds.
  for (uint64_t sample = 0; sample < 200; ++sample) {
    EXPECT_EQ(transformed(random_crop({2, 3}, {.padding = 9}), numbered(2, 3, 3), sample).pixels.size(), 18u);
  }
}

TEST(Transforms, FlipFollowsItsProbability) {
  int flipped = 0;
  for (uint64_t sample = 0; sample < 4'000; ++sample) {
    const Image image = transformed(random_horizontal_flip(0.25), numbered(1, 3, 3), sample);
    if (image.pixels == Bytes{3, 53, 103, 2, 52, 102, 1, 51, 101}) ++flipped;
  }
  EXPECT_NEAR(flipped, 1'000, 140);
  EXPECT_EQ(transformed(random_horizontal_flip(0), numbered(1, 2)).pixels, (Bytes{1, 2}));
  EXPECT_EQ(transformed(random_horizontal_flip(1), numbered(1, 2)).pixels, (Bytes{2, 1}));
}

TEST(Transforms, CropsAndResizes) {
  EXPECT_EQ(transformed(center_crop({1, 2}), numbered(3, 4)).pixels, (Bytes{6, 7}));
  EXPECT_EQ(message_of<InvalidArgument>([] {
              transformed(center_crop({4, 1}), numbered(3, 4));
            }),
            "[center_crop] expected an image of at least 4 x 1 but got 3 x 4");
  const Image resized = transformed(resize({5, 7}), numbered(3, 4, 3));
  EXPECT_EQ(resized.height, 5);
  EXPECT_EQ(resized.width, 7);
  // Without a change of size it is the middle, cut out.
  EXPECT_EQ(transformed(resize_center_crop(4, 2), numbered(4, 6)).pixels, (Bytes{9, 10, 15, 16}));
  const Image wide = transformed(resize_center_crop(2, 2), numbered(4, 8));
  EXPECT_EQ(wide.height, 2);
  EXPECT_EQ(wide.width, 2);
  EXPECT_EQ(message_of<InvalidArgument>([] { resize_center_crop(3, 4); }),
            "[resize_center_crop] expected 0 < crop <= size but got crop 4 and size 3");
}

TEST(Transforms, RandomResizedCropStaysInItsRanges) {
  // On a linear ramp, a window's mean is its centre and its outer values tell its size.
  Image ramp;
  ramp.reshape(128, 128, 1);
  for (int64_t y = 0; y < 128; ++y) {
    for (int64_t x = 0; x < 128; ++x) ramp.row(y)[x] = static_cast<uint8_t>(2 * x);
  }
  const auto transform =
      random_resized_crop(8, {.min_area = 0.25, .max_area = 0.5, .min_aspect = 1, .max_aspect = 1});
  std::set<int> centres;
  for (uint64_t sample = 0; sample < 300; ++sample) {
    const Image out = transformed(transform, ramp, sample);
    ASSERT_EQ(out.pixels.size(), 64u);
    const double width = (out.row(3)[7] - out.row(3)[0]) / 2.0 * 8 / 7;
    EXPECT_GE(width, 64 - 2.5);
    EXPECT_LE(width, 128 * std::sqrt(0.5) + 2.5);
    centres.insert((out.row(3)[0] + out.row(3)[7]) / 16);
  }
  EXPECT_GE(centres.size(), 5u);
  EXPECT_EQ(transformed(transform, ramp, 7).pixels, transformed(transform, ramp, 7).pixels);
  EXPECT_NE(transformed(transform, ramp, 7).pixels, transformed(transform, ramp, 7, 1).pixels);
  EXPECT_EQ(transformed(random_resized_crop({5, 4}), numbered(1, 100)).height,
            5);  // no window fits: the central one
}

/// Tells what a decoder was asked for of an image of any size, and gives one of that part.
class Asking final : public Dataset {
 public:
  Asking(int64_t height, int64_t width) : height_(height), width_(width) {}
  int64_t size() const override { return 1; }
  void read(int64_t, Sample& sample, const DecodeHintFunction& hint) const override {
    by = hint(height_, width_).by;
    sample.image.reshape((height_ + by - 1) / by, (width_ + by - 1) / by, 1);
  }
  mutable int by = 0;

 private:
  int64_t height_, width_;
};

int reduction_of(const TransformPtr& transform, int64_t height, int64_t width) {
  const auto dataset = std::make_shared<Asking>(height, width);
  DataLoader(dataset, {.batch_size = 1, .transforms = {transform}}).next();
  return dataset->by;
}

TEST(Transforms, AllowTheReductionThatKeepsTheDetail) {
  EXPECT_EQ(reduction_of(resize(10), 80, 80), 8);
  EXPECT_EQ(reduction_of(resize(10), 79, 200), 4);
  EXPECT_EQ(reduction_of(resize(10), 19, 200), 1);
  EXPECT_EQ(reduction_of(resize_center_crop(256, 224), 512, 900), 2);
  EXPECT_EQ(reduction_of(resize_center_crop(256, 224), 500, 375), 1);
  EXPECT_EQ(reduction_of(random_crop(400, {.padding = 4}), 400, 400), 1);
  EXPECT_EQ(reduction_of(random_rotation(10), 40, 40), 1);
  EXPECT_EQ(reduction_of(make_transform([](Sample&, SampleRandom&) {}), 40, 40), 1);
  const auto whole =
      random_resized_crop(10, {.min_area = 1, .max_area = 1, .min_aspect = 1, .max_aspect = 1});
  EXPECT_EQ(reduction_of(whole, 41, 41), 4);
}

}  // namespace
}  // namespace sinter::nn::data
