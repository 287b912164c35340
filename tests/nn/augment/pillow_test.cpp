// The steps of RandAugment, TrivialAugment and colour jitter, and rotation, against pictures that Pillow made
// (tests/data/images/make_augmented.py and others).
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/augment/policies/policy_steps.h>
#include <sinter/nn/augment/rand_augment_steps.h>
#include <sinter/nn/augment/trivial_augment.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/netpbm.h>
#include <sinter/nn/data/sample/frame.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn {
namespace {

data::Image picture(const std::string& name) {
  data::Image image;
  data::decode_netpbm(data::testing::load_picture(name), name, {}, image);
  return image;
}

/// The steps in the order of the script.
std::vector<PixelStep> all_steps(int64_t height, int64_t width) {
  std::vector<PixelStep> steps;
  for (const auto& [bin, sign] : {std::pair{9, 1.0}, std::pair{9, -1.0}, std::pair{28, 1.0}}) {
    for (uint64_t step = 0; step < kRandAugmentSteps; ++step)
      steps.push_back(rand_augment_step(static_cast<RandAugmentStep>(step), bin, 31, sign, height, width));
  }
  steps.push_back(fixed_step(ops::ImageStep::kHue, 0.25));
  steps.push_back(fixed_step(ops::ImageStep::kHue, -0.125));
  return steps;
}

std::vector<PixelStep> all_trivial_steps(int64_t height, int64_t width) {
  std::vector<PixelStep> steps;
  for (const auto& [bin, sign] :
       {std::pair{10, 1.0}, std::pair{10, -1.0}, std::pair{23, 1.0}, std::pair{30, -1.0}}) {
    for (uint64_t step = 0; step < kRandAugmentSteps; ++step)
      steps.push_back(trivial_augment_step(static_cast<RandAugmentStep>(step), bin, sign, height, width));
  }
  return steps;
}

/// Compares the steps of a part of a picture with a column of pictures.
void expect_pictures(const std::string& name,
                     const std::function<std::vector<PixelStep>(int64_t height, int64_t width)>& make_steps) {
  const data::Image column = picture(name), whole = picture("rgb.ppm");
  data::Image image;
  data::crop(whole, 3, 5, 17, 27, image);
  const std::vector<PixelStep> steps = make_steps(image.height, image.width);
  const auto count = static_cast<int64_t>(steps.size());
  ASSERT_EQ(column.height, count * image.height);
  std::vector<uint8_t> copies;
  for (int64_t n = 0; n < count; ++n) copies.insert(copies.end(), image.pixels.begin(), image.pixels.end());
  const Tensor batch = Tensor::from_values(copies, {count, image.height, image.width, 3});
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const auto values = apply_steps(batch.to(device), {steps}).to_vector<uint8_t>();
    const size_t size = image.pixels.size();
    for (size_t n = 0; n < steps.size(); ++n) {
      const bool moves = steps[n].step == ops::ImageStep::kAffine || steps[n].step == ops::ImageStep::kNone;
      // Pillow keeps hues in 256 steps, which are up to 6 levels wide; it rounds a few other things once
      // more.
      const int most = moves ? 0 : steps[n].step == ops::ImageStep::kHue ? 6 : 1;
      int largest = 0;
      for (size_t i = n * size; i < (n + 1) * size; ++i) {
        largest = std::max(largest, std::abs(int{values[i]} - int{column.pixels[i]}));
      }
      EXPECT_LE(largest, most) << to_string(device) << ", picture " << n;
    }
  }
}

TEST(AugmentationSteps, AreThoseOfPillow) {
  expect_pictures("augmented.ppm", all_steps);
}

/// torch.linspace(from, to, count)[i], in float32.
float linspace(float from, float to, int64_t count, int64_t i) {
  const float step = (to - from) / static_cast<float>(count - 1);
  return 2 * i < count ? from + step * static_cast<float>(i) : to - step * static_cast<float>(count - 1 - i);
}

// A threshold that is a whole number is not rounded past it, nor a whole number of pixels below it.
TEST(AugmentationSteps, HaveTheWholeNumbersOfTorchvision) {
  using enum RandAugmentStep;
  for (const int64_t bins : {10, 16, 31, 61}) {
    for (int64_t bin = 0; bin < bins; ++bin) {
      const float threshold = linspace(255, 0, bins, bin);
      int32_t least = 0;  // that torchvision's solarize inverts
      while (static_cast<float>(least) < threshold) ++least;
      EXPECT_EQ(rand_augment_step(kSolarize, bin, bins, 1, 9, 9).parameters[0], least)
          << bin << " of " << bins;
      if (bins == 31) {
        EXPECT_EQ(trivial_augment_step(kSolarize, bin, 1, 9, 9).parameters[0], least);
      }
      if (bins == 10) {
        EXPECT_EQ(aug_mix_step(kSolarize, bin, 1, 9, 9).parameters[0], least);
      }
      for (const int64_t side : {32, 224, 331, 662, 993}) {
        const auto most = static_cast<float>(150.0 / 331.0 * static_cast<double>(side));
        const auto pixels = static_cast<int32_t>(linspace(0, most, bins, bin));
        EXPECT_EQ(rand_augment_step(kTranslateX, bin, bins, -1, 9, side).parameters[2],
                  pixels * ops::kStepOne)
            << bin << " of " << bins << ", " << side;
      }
    }
  }
}

TEST(AugmentationSteps, OfTrivialAugmentAreThoseOfPillow) {
  expect_pictures("trivial.ppm", all_trivial_steps);
}

TEST(TrivialAugment, DrawsOneStepForEachImage) {
  data::Image image;
  data::crop(picture("rgb.ppm"), 3, 5, 17, 27, image);
  constexpr int64_t kCount = 60;
  std::vector<uint8_t> copies;
  std::vector<int64_t> samples;
  for (int64_t n = 0; n < kCount; ++n) {
    copies.insert(copies.end(), image.pixels.begin(), image.pixels.end());
    samples.push_back(n);
  }
  const Tensor batch = Tensor::from_values(copies, {kCount, image.height, image.width, 3});
  const data::BatchRandom draws(7, 0, samples);
  const auto values = TrivialAugment().apply(batch, Layout::kNHWC, draws).to_vector<uint8_t>();
  const size_t size = image.pixels.size();
  std::set<std::vector<uint8_t>> seen;
  for (size_t n = 0; n < size_t{kCount}; ++n) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(n * size);
    const std::vector<uint8_t> got(begin, begin + static_cast<std::ptrdiff_t>(size));
    seen.insert(got);
    bool found = false;  // among all steps of all strengths
    for (uint64_t step = 0; step < kRandAugmentSteps && !found; ++step) {
      std::vector<PixelStep> steps;
      for (int64_t bin = 0; bin < 31; ++bin) {
        for (const double sign : {1.0, -1.0})
          steps.push_back(
              trivial_augment_step(static_cast<RandAugmentStep>(step), bin, sign, image.height, image.width));
      }
      std::vector<uint8_t> more;
      for (size_t i = 0; i < steps.size(); ++i)
        more.insert(more.end(), image.pixels.begin(), image.pixels.end());
      const auto count = static_cast<int64_t>(steps.size());
      const Tensor tried = Tensor::from_values(more, {count, image.height, image.width, 3});
      const auto all = apply_steps(tried, {steps}).to_vector<uint8_t>();
      for (size_t i = 0; i < steps.size() && !found; ++i)
        found = std::equal(got.begin(), got.end(), all.begin() + static_cast<std::ptrdiff_t>(i * size));
    }
    EXPECT_TRUE(found) << n;
  }
  EXPECT_GT(seen.size(), 35u);
}

// tests/data/images/make_rotated.py.
TEST(Rotation, IsThatOfPillow) {
  const data::Image column = picture("rotated.ppm"), whole = picture("rgb.ppm");
  data::Image image, out;
  data::crop(whole, 3, 5, 17, 27, image);
  const double angles[] = {10, -37.5, 90, 180};
  ASSERT_EQ(column.height, 4 * image.height);
  for (int64_t n = 0; n < 4; ++n) {
    data::Frame frame(image.height, image.width);
    frame.rotate(angles[n]);
    data::show(frame, image, out);
    int64_t largest = 0, apart = 0;
    for (size_t i = 0; i < out.pixels.size(); ++i) {
      const int64_t expected = column.row(n * image.height)[i];
      const int64_t difference = std::abs(int64_t{out.pixels[i]} - expected);
      largest = std::max(largest, difference);
      if (difference > 1) ++apart;
    }
    // Pillow cuts a blend's fraction off, or rounds it. A pixel on the very edge may count as beyond it
    // there.
    EXPECT_LE(largest, 1) << angles[n] << ", " << apart << " values apart";
  }
}

}  // namespace
}  // namespace sinter::nn
