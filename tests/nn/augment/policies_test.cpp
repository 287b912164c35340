// AutoAugment, AugMix, timm's RandAugment, greyscale and blur: their steps against pictures that torchvision
// and timm made (tests/data/images/make_policies.py), and what they draw.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/augment/policies/aug_mix.h>
#include <sinter/nn/augment/policies/auto_augment.h>
#include <sinter/nn/augment/policies/auto_augment_policies.h>
#include <sinter/nn/augment/policies/draws.h>
#include <sinter/nn/augment/policies/policy_steps.h>
#include <sinter/nn/augment/policies/three_augment.h>
#include <sinter/nn/augment/policies/timm_rand_augment.h>
#include <sinter/nn/data/image/netpbm.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn {
namespace {

using enum RandAugmentStep;
using data::testing::message_of;

data::Image picture(const std::string& name) {
  data::Image image;
  data::decode_netpbm(data::testing::load_picture(name), name, {}, image);
  return image;
}

data::Image part_of_picture() {
  data::Image image;
  data::crop(picture("rgb.ppm"), 3, 5, 17, 27, image);
  return image;
}

Tensor copies_of(const data::Image& image, int64_t count) {
  std::vector<uint8_t> copies;
  for (int64_t n = 0; n < count; ++n) copies.insert(copies.end(), image.pixels.begin(), image.pixels.end());
  return Tensor::from_values(copies, {count, image.height, image.width, image.channels});
}

data::BatchRandom draws_of(uint64_t seed, int64_t epoch, int64_t begin, int64_t end) {
  std::vector<int64_t> samples;
  for (int64_t i = begin; i < end; ++i) samples.push_back(i);
  return {seed, epoch, samples};
}

constexpr RandAugmentStep kAugMixSteps[] = {kShearX,    kShearY,   kTranslateX,   kTranslateY, kRotate,
                                            kPosterize, kSolarize, kAutoContrast, kEqualize,   kBrightness,
                                            kColor,     kContrast, kSharpness};
constexpr RandAugmentStep kTimmSteps[] = {kAutoContrast, kEqualize,    kInvert, kRotate,     kPosterize,
                                          kSolarize,     kSolarizeAdd, kColor,  kContrast,   kBrightness,
                                          kSharpness,    kShearX,      kShearY, kTranslateX, kTranslateY};

/// Pairs of steps in the order of the script.
std::vector<std::array<PixelStep, 2>> all_steps(int64_t height, int64_t width) {
  std::vector<std::array<PixelStep, 2>> steps;
  const auto add = [&](const PixelStep& step) { steps.push_back({step, PixelStep{}}); };
  for (const auto& [bin, sign] : {std::pair{4, 1.0}, std::pair{4, -1.0}, std::pair{7, 1.0}}) {
    for (const RandAugmentStep step : kAugMixSteps) add(aug_mix_step(step, bin, sign, height, width));
  }
  for (const auto& [level, sign] : {std::pair{7.3, 1.0}, std::pair{7.3, -1.0}, std::pair{9.9, 1.0}}) {
    for (const RandAugmentStep step : kTimmSteps) add(timm_step(step, level, sign, height, width));
  }
  add(greyscale_step());
  add({ops::ImageStep::kSolarize, {128}});
  for (const double sigma : {0.1, 0.7, 2.0}) steps.push_back(blur_steps(sigma));
  return steps;
}

TEST(PolicySteps, AreThoseOfTorchvisionAndTimm) {
  const data::Image column = picture("policies.ppm"), image = part_of_picture();
  const auto pairs = all_steps(image.height, image.width);
  const auto count = static_cast<int64_t>(pairs.size());
  ASSERT_EQ(column.height, count * image.height);
  std::vector<std::vector<PixelStep>> steps(2);
  for (const auto& pair : pairs) {
    for (size_t k = 0; k < 2; ++k) steps[k].push_back(pair[k]);
  }
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const auto values = apply_steps(copies_of(image, count).to(device), steps).to_vector<uint8_t>();
    const size_t size = image.pixels.size();
    for (size_t n = 0; n < pairs.size(); ++n) {
      const bool moves = steps[0][n].step == ops::ImageStep::kAffine;
      int largest = 0;
      for (size_t i = n * size; i < (n + 1) * size; ++i)
        largest = std::max(largest, std::abs(int{values[i]} - int{column.pixels[i]}));
      EXPECT_LE(largest, moves ? 0 : 1) << to_string(device) << ", picture " << n;
    }
  }
}

TEST(AutoAugment, HasTheTablesOfThePaper) {
  const std::map<std::string, RandAugmentStep> names = {
      {"ShearX", kShearX},         {"ShearY", kShearY},     {"TranslateX", kTranslateX},
      {"TranslateY", kTranslateY}, {"Rotate", kRotate},     {"Brightness", kBrightness},
      {"Color", kColor},           {"Contrast", kContrast}, {"Sharpness", kSharpness},
      {"Posterize", kPosterize},   {"Solarize", kSolarize}, {"AutoContrast", kAutoContrast},
      {"Equalize", kEqualize},     {"Invert", kInvert}};
  const auto bytes = data::testing::load_picture("auto_augment.txt");
  std::istringstream table(std::string(bytes.begin(), bytes.end()));
  for (const auto policy :
       {AutoAugmentPolicy::kImageNet, AutoAugmentPolicy::kCifar10, AutoAugmentPolicy::kSvhn}) {
    const auto parts = auto_augment_parts(policy);
    ASSERT_EQ(parts.size(), 25u);
    for (const AutoAugmentPart& part : parts) {
      for (const AutoAugmentStep& step : {part.first, part.second}) {
        std::string name;
        double probability = -1;
        int64_t strength = -1;
        ASSERT_TRUE(table >> name >> probability >> strength);
        EXPECT_EQ(step.step, names.at(name));
        EXPECT_EQ(step.probability, probability);
        EXPECT_EQ(step.strength, strength);
      }
    }
  }
}

std::vector<data::Augmentation> policies() {
  return {AutoAugment(),
          AutoAugment({.policy = AutoAugmentPolicy::kCifar10}),
          AutoAugment({.policy = AutoAugmentPolicy::kSvhn}),
          AugMix(),
          AugMix({.severity = 10, .width = 2, .depth = 2, .alpha = 0.3, .all_steps = false}),
          TimmRandAugment({.magnitude = 7}),
          ThreeAugment(),
          RandomGreyscale({.probability = 0.5}),
          RandomBlur()};
}

TEST(Policies, DependOnNothingButSeedEpochAndSample) {
  constexpr int64_t kCount = 24;
  const data::Image image = part_of_picture();
  const size_t size = image.pixels.size();
  for (const data::Augmentation& policy : policies()) {
    const auto apply = [&](const data::BatchRandom& draws, Device device = {}) {
      return policy->apply(copies_of(image, draws.size()).to(device), Layout::kNHWC, draws)
          .to_vector<uint8_t>();
    };
    const auto whole = apply(draws_of(7, 1, 0, kCount));
    for (int64_t n = kCount - 1; n >= 0; n -= 5) {  // in batches of other sizes
      const auto one = apply(draws_of(7, 1, n, n + 1));
      EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + n * static_cast<std::ptrdiff_t>(size)));
    }
    EXPECT_NE(apply(draws_of(8, 1, 0, kCount)), whole);
    EXPECT_NE(apply(draws_of(7, 2, 0, kCount)), whole);
    if (is_available(Device::cuda())) {
      EXPECT_EQ(apply(draws_of(7, 1, 0, kCount), Device::cuda()), whole);
    }
  }
}

/// How many of `count` copies of a picture become one of those that `expected` gives.
int count_of(const data::Augmentation& policy, int64_t count,
             const std::vector<std::vector<std::vector<PixelStep>>>& expected) {
  const data::Image image = part_of_picture();
  const auto values =
      policy->apply(copies_of(image, count), Layout::kNHWC, draws_of(5, 0, 0, count)).to_vector<uint8_t>();
  std::set<std::vector<uint8_t>> wanted;
  for (const auto& steps : expected)
    wanted.insert(apply_steps(copies_of(image, 1), steps).to_vector<uint8_t>());
  int found = 0;
  const auto size = static_cast<std::ptrdiff_t>(image.pixels.size());
  for (auto at = values.begin(); at != values.end(); at += size)
    found += wanted.contains(std::vector<uint8_t>(at, at + size)) ? 1 : 0;
  return found;
}

TEST(Policies, DrawAsOftenAsTheySay) {
  const PixelStep grey = greyscale_step(), solarized = {ops::ImageStep::kSolarize, {128}};
  EXPECT_NEAR(count_of(RandomGreyscale({.probability = 0.3}), 1000, {{{grey}}}), 300, 60);
  EXPECT_NEAR(count_of(RandomBlur({.probability = 0.4, .min_sigma = 1.5, .max_sigma = 1.5}), 1000,
                       {{{blur_steps(1.5)[0]}, {blur_steps(1.5)[1]}}}),
              400, 60);
  EXPECT_NEAR(count_of(ThreeAugment(), 1000, {{{grey}}}), 333, 60);
  EXPECT_NEAR(count_of(ThreeAugment(), 1000, {{{solarized}}}), 333, 60);
  // Neither of two steps is done with probability 1/4, nor does a rare one change anything.
  const int none = count_of(TimmRandAugment({.deviation = 0}), 1000, {{{PixelStep{}}}});
  EXPECT_GE(none, 200);
  EXPECT_LE(none, 400);
  EXPECT_EQ(count_of(TimmRandAugment({.probability = 0}), 50, {{{PixelStep{}}}}), 50);
}

TEST(AutoAugment, MakesWhatThePartsOfItsPolicyMake) {
  constexpr int64_t kCount = 300;
  const data::Image image = part_of_picture();
  std::vector<std::vector<std::vector<PixelStep>>> possible;
  for (const AutoAugmentPart& part : auto_augment_parts(AutoAugmentPolicy::kCifar10)) {
    const auto versions = [&](const AutoAugmentStep& step) {
      std::vector<PixelStep> all;
      if (step.probability < 1) all.emplace_back();
      if (step.probability == 0) return all;
      for (const double sign : {1.0, -1.0})
        all.push_back(
            rand_augment_step(step.step, step.strength, kAutoAugmentBins, sign, image.height, image.width));
      return all;
    };
    for (const PixelStep& first : versions(part.first)) {
      for (const PixelStep& second : versions(part.second)) possible.push_back({{first}, {second}});
    }
  }
  EXPECT_EQ(count_of(AutoAugment({.policy = AutoAugmentPolicy::kCifar10}), kCount, possible), kCount);
}

TEST(AugMix, IsAMeanOfTheImageAndItsChains) {
  // Each step leaves a picture of one value as it is, or makes it a picture of some value in its middle; a
  // mean of such pictures lies between them.
  const Tensor even = Tensor::full({200, 9, 9, 3}, 100, DType::kUInt8);
  const AugMix paper({.depth = 1, .all_steps = false});
  const auto values = paper.apply(even, Layout::kNHWC, draws_of(1, 0, 0, 200)).to_vector<uint8_t>();
  std::set<int> middles;
  for (size_t n = 0; n < 200; ++n) middles.insert(values[n * 243 + 40 * 3]);
  EXPECT_LE(*middles.rbegin(), 100);
  EXPECT_GE(*middles.begin(), 90);  // posterise to 4 or 3 bits gives 96, solarise from 198 on nothing
  EXPECT_GT(middles.size(), 3u);

  // A share of the image itself that is nearly 1 or 0 for small alpha.
  const AugMix sharp({.width = 1, .depth = 1, .alpha = 0.01});
  const data::Image image = part_of_picture();
  const auto mixed =
      sharp.apply(copies_of(image, 200), Layout::kNHWC, draws_of(1, 0, 0, 200)).to_vector<uint8_t>();
  int same = 0;
  for (size_t n = 0; n < 200; ++n) {
    const size_t size = image.pixels.size();
    same += std::equal(image.pixels.begin(), image.pixels.end(),
                       mixed.begin() + static_cast<std::ptrdiff_t>(n * size))
                ? 1
                : 0;
  }
  EXPECT_GE(same, 60);
  EXPECT_LE(same, 150);
}

TEST(Draws, HaveTheirMomentsAndShapes) {
  constexpr int kCount = 20000;
  data::SampleRandom random(3, 0, 0);
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = draw_normal(random);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.03);
  EXPECT_NEAR(squares / kCount, 1, 0.05);
  for (const double shape : {0.4, 1.0, 3.5}) {  // mean and variance are the shape
    sum = squares = 0;
    for (int i = 0; i < kCount; ++i) {
      const double x = draw_gamma(random, shape);
      ASSERT_GE(x, 0);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kCount;
    EXPECT_NEAR(mean, shape, 0.04 * shape + 0.01);
    EXPECT_NEAR(squares / kCount - mean * mean, shape, 0.12 * shape);
  }
}

TEST(Policies, RefuseWhatCannotBe) {
  EXPECT_EQ(message_of([] { AugMix({.severity = 11}); }),
            "[aug_mix] expected a severity from 1 to 10 but got 11");
  EXPECT_EQ(message_of([] { AugMix({.width = 0}); }), "[aug_mix] expected 1 to 16 chains but got 0");
  EXPECT_EQ(message_of([] { AugMix({.depth = -1}); }),
            "[aug_mix] expected a depth from 1 to 16, or 0, but got -1");
  EXPECT_EQ(message_of([] { AugMix({.alpha = 0}); }), "[aug_mix] expected 0 < alpha <= 1000 but got 0");
  EXPECT_EQ(message_of([] { TimmRandAugment({.steps = 17}); }),
            "[timm_rand_augment] expected 1 to 16 steps but got 17");
  EXPECT_EQ(message_of([] { TimmRandAugment({.magnitude = 11}); }),
            "[timm_rand_augment] expected a magnitude from 0 to 10 but got 11");
  EXPECT_EQ(message_of([] { TimmRandAugment({.deviation = -1}); }),
            "[timm_rand_augment] expected a deviation from 0 to 100 but got -1");
  EXPECT_EQ(message_of([] { RandomGreyscale({.probability = 2}); }),
            "[random_greyscale] expected a probability but got 2");
  EXPECT_EQ(message_of([] { RandomBlur({.max_sigma = 3}); }),
            "[random_blur] expected 0 < min_sigma <= max_sigma <= 2 but got 0.1 and 3");
  for (const data::Augmentation& policy : policies()) {
    const std::string message = message_of([&] {
      policy->apply(Tensor::zeros({2, 3, 4, 5}), Layout::kNHWC, draws_of(1, 0, 0, 2));
    });
    EXPECT_NE(message.find("] expected uint8 pixels (2, H, W, C) but got float32 (2, 3, 4, 5)"),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace sinter::nn
