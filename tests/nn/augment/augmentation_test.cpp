// What random augmentations draw: their ranges, that they are functions of seed, epoch and sample alone, and
// what they do to a batch in the loader.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/augment/color_jitter.h>
#include <sinter/nn/augment/rand_augment.h>
#include <sinter/nn/augment/rand_augment_steps.h>
#include <sinter/nn/augment/random_erasing.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/ops/cast/cast.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn {
namespace {

using data::BatchRandom;
using data::testing::message_of;

constexpr int64_t kHeight = 11, kWidth = 14;

std::vector<int64_t> numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> values;
  for (int64_t i = begin; i < end; ++i) values.push_back(i);
  return values;
}

/// The same image again and again.
Tensor copies_of_one(int64_t count, int64_t channels) {
  const Tensor images = Tensor::empty({count, kHeight, kWidth, channels}, DType::kUInt8);
  const int64_t size = images.numel() / count;
  for (int64_t i = 0; i < images.numel(); ++i) {
    images.data<uint8_t>()[i] = static_cast<uint8_t>(philox(5, static_cast<uint64_t>(i % size)).words[0]);
  }
  return images;
}

std::vector<data::Augmentation> pixel_augmentations() {
  return {RandAugment({.steps = 3, .magnitude = 12}),
          ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1})};
}

Tensor applied(const data::Augmentation& step, const Tensor& images, const BatchRandom& draws,
               Layout layout = Layout::kNHWC) {
  return step->apply(images, layout, draws);
}

TEST(BatchRandom, AreOfSeedEpochAndSample) {
  const auto word = [](uint64_t seed, int64_t epoch, int64_t sample) {
    return BatchRandom(seed, epoch, {99, sample}).of(1).word();
  };
  EXPECT_EQ(word(1, 2, 3), data::SampleRandom(1, 2, 3).word());
  EXPECT_EQ(BatchRandom(1, 2, {3}).of(0).word(), word(1, 2, 3));
  const BatchRandom draws(1, 2, {3});
  EXPECT_NE(draws.at_place(0).of(0).word(), draws.of(0).word());
  EXPECT_NE(draws.at_place(0).of(0).word(), draws.at_place(1).of(0).word());
  EXPECT_EQ(draws.at_place(1).of(0).word(), draws.at_place(1).of(0).word());
}

TEST(PixelAugmentations, DependOnNothingButSeedEpochAndSample) {
  const Tensor images = copies_of_one(12, 3);
  const int64_t size = images.numel() / 12;
  for (const data::Augmentation& step : pixel_augmentations()) {
    const auto whole = applied(step, images, {7, 1, numbers(0, 12)}).to_vector<uint8_t>();
    // In batches of other sizes, and in another order.
    for (int64_t n = 11; n >= 0; --n) {
      const auto one = applied(step, copies_of_one(1, 3), {7, 1, {n}}).to_vector<uint8_t>();
      EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + n * size)) << n;
    }
    EXPECT_NE(applied(step, images, {8, 1, numbers(0, 12)}).to_vector<uint8_t>(), whole);
    EXPECT_NE(applied(step, images, {7, 2, numbers(0, 12)}).to_vector<uint8_t>(), whole);
    if (is_available(Device::cuda())) {
      EXPECT_EQ(applied(step, images.to(Device::cuda()), {7, 1, numbers(0, 12)}).to_vector<uint8_t>(), whole);
    }
  }
}

TEST(RandAugment, DrawsAllStepsEvenlyInBothDirections) {
  constexpr int64_t kCount = 4000;
  const RandAugment augment({.steps = 1, .magnitude = 15});
  const auto values =
      augment.apply(copies_of_one(kCount, 3), Layout::kNHWC, {3, 0, numbers(0, kCount)}).to_vector<uint8_t>();
  std::map<std::vector<uint8_t>, int> seen;
  const auto size = static_cast<ptrdiff_t>(kHeight * kWidth * 3);
  for (ptrdiff_t n = 0; n < kCount; ++n) {
    ++seen[{values.begin() + n * size, values.begin() + (n + 1) * size}];
  }
  // Each step by itself, one picture for each sign. Of 154 pixels, equalize leaves some images as they are.
  for (uint64_t i = 0; i < kRandAugmentSteps; ++i) {
    const auto step = static_cast<RandAugmentStep>(i);
    for (const double sign : {1.0, -1.0}) {
      const PixelStep alone = rand_augment_step(step, 15, 31, sign, kHeight, kWidth);
      const int found = seen[apply_steps(copies_of_one(1, 3), {{alone}}).to_vector<uint8_t>()];
      const double expected = kCount / 14.0 / (is_signed(step) ? 2 : 1);
      EXPECT_GE(found, 0.7 * expected) << "step " << i;
      EXPECT_TRUE(!is_signed(step) || found <= 1.3 * expected) << "step " << i << ": " << found;
    }
  }
}

TEST(ColorJitter, StaysWithinItsAmountsInEveryOrder) {
  constexpr int64_t kCount = 300;
  const Tensor grey = Tensor::full({kCount, 3, 3, 3}, 100, DType::kUInt8);
  const auto values = ColorJitter({.brightness = 0.3})
                          .apply(grey, Layout::kNHWC, {1, 0, numbers(0, kCount)})
                          .to_vector<uint8_t>();
  EXPECT_GE(*std::ranges::min_element(values), 70);
  EXPECT_LE(*std::ranges::min_element(values), 73);
  EXPECT_LE(*std::ranges::max_element(values), 130);
  EXPECT_GE(*std::ranges::max_element(values), 127);
  // Nothing but brightness changes a grey picture of one value.
  const ColorJitter others({.contrast = 0.5, .saturation = 0.5, .hue = 0.5});
  EXPECT_EQ(others.apply(grey, Layout::kNHWC, {1, 0, numbers(0, kCount)}).to_vector<uint8_t>(),
            grey.to_vector<uint8_t>());
  // Of black and white, brightness above 1 changes nothing, and contrast below 1 then gives two greys around
  // the middle; in the other order both are brighter.
  const ColorJitter both({.brightness = 1, .contrast = 1});
  const Tensor two = Tensor::from_values(std::vector<uint8_t>{0, 255}, {1, 1, 2, 1});
  int brightness_first = 0, contrast_first = 0;
  for (int64_t n = 0; n < 200; ++n) {
    const auto greys = both.apply(two, Layout::kNHWC, {1, 0, {n}}).to_vector<uint8_t>();
    if (greys[0] < 3) continue;
    const int sum = greys[0] + greys[1];
    if (sum >= 253 && sum <= 256) ++brightness_first;
    if (sum >= 259) ++contrast_first;
  }
  EXPECT_GE(brightness_first, 10);
  EXPECT_GE(contrast_first, 10);
}

TEST(RandomErasing, ErasesBoxesOfItsAreasAndAspects) {
  constexpr int64_t kCount = 500, kSide = 40;
  const RandomErasingOptions options{.probability = 0.6, .values = {5.0F, 6.0F}};
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const bool last = layout == Layout::kNHWC;
    const Tensor images =
        Tensor::zeros(last ? Shape{kCount, kSide, kSide, 2} : Shape{kCount, 2, kSide, kSide});
    const auto values =
        RandomErasing(options).apply(images, layout, {1, 0, numbers(0, kCount)}).to_vector<float>();
    int erased = 0;
    for (int64_t n = 0; n < kCount; ++n) {
      int64_t top = kSide, left = kSide, bottom = -1, right = -1, pixels = 0;
      for (int64_t y = 0; y < kSide; ++y) {
        for (int64_t x = 0; x < kSide; ++x) {
          const auto value = [&](int64_t c) {
            const int64_t at = last ? (y * kSide + x) * 2 + c : (c * kSide + y) * kSide + x;
            return values[static_cast<size_t>(n * 2 * kSide * kSide + at)];
          };
          if (value(0) == 0) continue;
          EXPECT_EQ(value(0), 5.0F);
          EXPECT_EQ(value(1), 6.0F);
          top = std::min(top, y), left = std::min(left, x), bottom = std::max(bottom, y),
          right = std::max(right, x);
          ++pixels;
        }
      }
      if (pixels == 0) continue;
      ++erased;
      const auto height = static_cast<double>(bottom - top + 1),
                 width = static_cast<double>(right - left + 1);
      EXPECT_EQ(static_cast<double>(pixels), height * width);
      // Sides are rounded to whole pixels.
      EXPECT_GE((height + 0.5) * (width + 0.5), 0.02 * kSide * kSide);
      EXPECT_LE((height - 0.5) * (width - 0.5), 0.33 * kSide * kSide);
      EXPECT_GE((height + 0.5) / (width - 0.5), 0.3);
      EXPECT_LE((height - 0.5) / (width + 0.5), 1 / 0.3);
    }
    EXPECT_GE(erased, 250);
    EXPECT_LE(erased, 350);
  }
}

TEST(Augmentations, RefuseWhatCannotBe) {
  EXPECT_EQ(message_of([] { RandAugment({.steps = 0}); }), "[rand_augment] expected 1 to 16 steps but got 0");
  EXPECT_EQ(message_of([] { RandAugment({.magnitude = 31}); }),
            "[rand_augment] expected a magnitude from 0 to 30 but got 31");
  EXPECT_EQ(message_of([] { RandAugment({.bins = 1}); }), "[rand_augment] expected 2 to 1000 bins but got 1");
  EXPECT_EQ(message_of([] { ColorJitter({.contrast = -1}); }),
            "[color_jitter] expected a contrast from 0 to 100 but got -1");
  EXPECT_EQ(message_of([] { ColorJitter({.hue = 0.6}); }),
            "[color_jitter] expected a hue from 0 to 0.5 but got 0.6");
  EXPECT_EQ(message_of([] { RandomErasing({.probability = 1.5}); }),
            "[random_erasing] expected a probability but got 1.5");
  EXPECT_EQ(message_of([] { RandomErasing({.min_area = 0.5}); }),
            "[random_erasing] expected 0 < min_area <= max_area <= 1 but got 0.5 and 0.33");
  EXPECT_EQ(message_of([] {
              RandAugment().apply(Tensor::zeros({2, 3, 4, 5}), Layout::kNHWC, {1, 0, {0, 1}});
            }),
            "[rand_augment] expected uint8 pixels (2, H, W, C) but got float32 (2, 3, 4, 5)");
  EXPECT_EQ(message_of([] {
              RandomErasing().apply(Tensor::zeros({2, 3, 4, 5}), Layout::kNHWC, {1, 0, {0}});
            }),
            "[random_erasing] expected 1 images of rank 4 but got shape (2, 3, 4, 5)");
}

/// A set of small pictures in memory.
std::shared_ptr<const data::Dataset> pictures(int64_t count, int64_t channels = 3) {
  data::MemoryDataset::Content contents;
  contents.height = kHeight;
  contents.width = kWidth;
  contents.channels = channels;
  for (int64_t n = 0; n < count; ++n) {
    for (int64_t i = 0; i < kHeight * kWidth * channels; ++i) {
      contents.pixels.push_back(
          static_cast<uint8_t>(philox(static_cast<uint64_t>(n), static_cast<uint64_t>(i)).words[0]));
    }
    contents.labels.push_back(n % 3);
  }
  contents.class_names = {"a", "b", "c"};
  return std::make_shared<data::MemoryDataset>(std::move(contents));
}

data::DataLoaderOptions loader_options(int64_t batch_size, int workers, Device device = {}) {
  std::vector<data::Augmentation> augmentations = pixel_augmentations();
  augmentations.emplace_back(RandomErasing({.probability = 0.9}));
  return {
      .batch_size = batch_size,
      .shuffle = true,
      .seed = 11,
      .workers = workers,
      .device = device,
      .layout = Layout::kNCHW,
      .normalization = data::symmetric_normalization(),
      .transforms = {data::random_crop({kHeight, kWidth}, {.padding = 2}), data::random_horizontal_flip()},
      .augmentations = std::move(augmentations)};
}

/// All images of an epoch, one behind the other.
std::vector<float> epoch_of(data::DataLoader& loader) {
  std::vector<float> all;
  while (const auto batch = loader.next()) {
    const auto values = ops::cast(batch->images, DType::kFloat32).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(LoaderAugmentation, DoesNotDependOnWorkersOrBatches) {
  data::DataLoader plain(pictures(10), loader_options(4, 0)), threads(pictures(10), loader_options(4, 3)),
      others(pictures(10), loader_options(3, 2));
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto expected = epoch_of(plain);
    EXPECT_EQ(epoch_of(threads), expected);
    EXPECT_EQ(epoch_of(others), expected);
  }
}

TEST(LoaderAugmentation, GoesOnWhereALoaderStood) {
  data::DataLoader whole(pictures(10), loader_options(4, 0)), resumed(pictures(10), loader_options(4, 2));
  epoch_of(whole);
  whole.next();
  resumed.load_state(whole.state());
  EXPECT_EQ(epoch_of(resumed), epoch_of(whole));
  EXPECT_EQ(epoch_of(resumed), epoch_of(whole));
}

TEST(LoaderAugmentation, IsTheSameOnEveryDevice) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  data::DataLoader cpu(pictures(10), loader_options(4, 0)),
      gpu(pictures(10), loader_options(4, 2, Device::cuda()));
  const auto expected = epoch_of(cpu), got = epoch_of(gpu);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i;
}

/// What the loader gives is what the parts give, one by one.
TEST(LoaderAugmentation, IsPixelsThenNormalisationThenErasing) {
  data::DataLoaderOptions options = loader_options(10, 0);
  options.shuffle = false;
  options.transforms = {};
  const auto dataset = pictures(10);
  data::DataLoader loader(dataset, options);
  std::vector<uint8_t> bytes;
  for (int64_t n = 0; n < 10; ++n) {
    const data::Image image = dataset->get(n).image;
    bytes.insert(bytes.end(), image.pixels.begin(), image.pixels.end());
  }
  Tensor pixels = Tensor::from_values(bytes, {10, kHeight, kWidth, 3});
  const BatchRandom draws(11, 0, numbers(0, 10));
  for (size_t i = 0; i < 2; ++i) pixels = applied(options.augmentations[i], pixels, draws.at_place(i));
  const auto values = pixels.to_vector<uint8_t>();
  const Tensor normalized = Tensor::empty({10, 3, kHeight, kWidth});
  for (int64_t i = 0; i < normalized.numel(); ++i) {
    const int64_t x = i % kWidth, y = i / kWidth % kHeight, c = i / kWidth / kHeight % 3,
                  n = i / kWidth / kHeight / 3;
    const auto value =
        static_cast<float>(values[static_cast<size_t>(((n * kHeight + y) * kWidth + x) * 3 + c)]);
    normalized.data<float>()[i] = value / 127.5F - 1.0F;
  }
  const auto expected =
      applied(options.augmentations[2], normalized, draws.at_place(2), Layout::kNCHW).to_vector<float>();
  const auto got = loader.next()->images.to_vector<float>();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST(LoaderAugmentation, TakesResampledPicturesAndRefusesOtherChannels) {
  data::DataLoaderOptions options = loader_options(5, 0);
  options.transforms = {data::random_resized_crop({9, 13})};
  data::DataLoader resampled(pictures(5), options);
  EXPECT_EQ(resampled.next()->images.shape(), (Shape{5, 3, 9, 13}));
  data::DataLoader two_channels(pictures(5, 2), loader_options(5, 0));
  EXPECT_EQ(message_of([&] { two_channels.next(); }), "[augment_images] expected 1 or 3 channels but got 2");
}

}  // namespace
}  // namespace sinter::nn
