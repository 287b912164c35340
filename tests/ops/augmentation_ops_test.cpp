// augment_images, mix_images, erase_images and batches of bytes: known answers, and calls that are refused.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/erase_images/erase_images.h>
#include <sinter/ops/mix_images/mix_images.h>
#include <sinter/ops/resize_images/resize_images.h>

#include "ops/ops_test_support.h"

#define EXPECT_ERROR(call, text) EXPECT_EQ(message_of([&] { (call); }), text)

namespace sinter::ops {
namespace {

using testing::message_of;
using Bytes = std::vector<uint8_t>;

Tensor steps_of(ImageStep step, std::vector<int32_t> parameters, Device device = {}) {
  parameters.insert(parameters.begin(), static_cast<int32_t>(step));
  parameters.resize(kStepFields);
  return Tensor::from_values(parameters, {1, kStepFields}, device);
}

/// What a step makes of a row of grey pixels.
Bytes augmented(const Bytes& row, ImageStep step, const std::vector<int32_t>& parameters = {}) {
  const Tensor image = Tensor::from_values(row, {1, 1, static_cast<int64_t>(row.size()), 1});
  return augment_images(image, steps_of(step, parameters)).to_vector<uint8_t>();
}

TEST(AugmentImages, GivesKnownAnswers) {
  using enum ImageStep;
  constexpr int32_t kOne = kStepOne;
  const Bytes row = {0, 50, 100, 255};
  EXPECT_EQ(augmented(row, kNone), row);
  EXPECT_EQ(augmented(row, kBrightness, {kOne + kOne / 2}), (Bytes{0, 75, 150, 255}));
  EXPECT_EQ(augmented(row, kBrightness, {-kOne}), (Bytes{0, 0, 0, 0}));
  EXPECT_EQ(augmented(row, kContrast, {0}), (Bytes{101, 101, 101, 101}));  // their mean is 101.25
  EXPECT_EQ(augmented(row, kPosterize, {2}), (Bytes{0, 0, 64, 192}));
  EXPECT_EQ(augmented(row, kPosterize, {0}), (Bytes{0, 0, 0, 0}));
  EXPECT_EQ(augmented(row, kPosterize, {8}), row);
  EXPECT_EQ(augmented(row, kSolarize, {100}), (Bytes{0, 50, 155, 0}));
  EXPECT_EQ(augmented({50, 60, 100}, kAutocontrast), (Bytes{0, 51, 255}));
  EXPECT_EQ(augmented({7, 7}, kAutocontrast), (Bytes{7, 7}));
  EXPECT_EQ(augmented(row, kEqualize), row);  // too few pixels
  EXPECT_EQ(augmented(row, kAffine, {kOne, 0, kOne, 0, kOne, 0}), (Bytes{50, 100, 255, 0}));
  EXPECT_EQ(augmented(row, kAffine, {-kOne, 0, 4 * kOne, 0, kOne, 0}), (Bytes{255, 100, 50, 0}));
  EXPECT_EQ(augmented(row, kSaturation, {0}), row);
  EXPECT_EQ(augmented(row, kHue, {kOne / 3}), row);
}

TEST(AugmentImages, TurnsTheColoursOfPixels) {
  const Tensor image = Tensor::from_values(Bytes{200, 10, 10, 10, 20, 30}, {1, 1, 2, 3});
  const auto turned = [&](int32_t turn) {
    return augment_images(image, steps_of(ImageStep::kHue, {turn})).to_vector<uint8_t>();
  };
  EXPECT_EQ(turned(0), image.to_vector<uint8_t>());
  EXPECT_EQ(turned(kStepOne), image.to_vector<uint8_t>());
  EXPECT_EQ(turned(kStepOne / 2), (Bytes{10, 200, 200, 30, 20, 10}));
  EXPECT_EQ(augment_images(image, steps_of(ImageStep::kSaturation, {0})).to_vector<uint8_t>(),
            (Bytes{67, 67, 67, 18, 18, 18}));
}

TEST(AugmentImages, EqualizesALargeImageOnEveryDevice) {
  // 16,384 pixels in parts, of values 100 to 131, each 512 times: 31 * 512 pixels are below the largest
  // value.
  Bytes values;
  for (int i = 0; i < 16'384; ++i) values.push_back(static_cast<uint8_t>(100 + i % 32));
  const int step = 31 * 512 / 255;
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const Tensor image = Tensor::from_values(values, {1, 128, 128, 1}, device);
    const auto equalized =
        augment_images(image, steps_of(ImageStep::kEqualize, {}, device)).to_vector<uint8_t>();
    for (size_t i = 0; i < equalized.size(); ++i) {
      const int below = static_cast<int>(i % 32) * 512;
      ASSERT_EQ(equalized[i], std::min(255, (below + step / 2) / step)) << i;
    }
  }
}

TEST(AugmentImages, RefusesWrongCalls) {
  const Tensor steps = steps_of(ImageStep::kNone, {});
  const auto images = [](const Shape& shape) { return Tensor::zeros(shape, DType::kUInt8); };
  EXPECT_ERROR(augment_images(images({1, 4, 4, 2}), steps),
               "[augment_images] expected 1 or 3 channels but got 2");
  EXPECT_THROW(augment_images(images({2, 4, 4, 1}), steps), InvalidArgument);
  EXPECT_THROW(augment_images(Tensor::zeros({1, 4, 4, 1}), steps), InvalidArgument);
  EXPECT_EQ(augment_images(images({0, 4, 4, 3}), Tensor::zeros({0, 8}, DType::kInt32)).numel(), 0);
}

TEST(MixImages, RefusesWrongCalls) {
  const Tensor x = Tensor::zeros({2, 3, 4, 4});
  EXPECT_ERROR(mix_images(x, {.share = 1.5}), "[mix_images] expected a share from 0 to 1 but got 1.5");
  EXPECT_ERROR(mix_images(x, {.share = std::nan("")}),
               "[mix_images] expected a share from 0 to 1 but got nan");
  EXPECT_ERROR(mix_images(x, {.boxed = true, .height = -1, .width = 2}),
               "[mix_images] expected a box of size >= 0 near the images but got -1 x 2 at (0, 0)");
  EXPECT_THROW(mix_images(Tensor::zeros({2, 3}), {.boxed = true}), InvalidArgument);
  EXPECT_THROW(mix_images(Tensor::zeros({2, 3}, DType::kInt64), {}), InvalidArgument);
  EXPECT_ERROR(mix_images(Tensor::zeros(Shape{}), {}), "[mix_images] expected rows but got a scalar");
}

TEST(MixImages, CopiesInfinityWhereNothingIsMixed) {
  const float infinity = INFINITY;
  const Tensor x = Tensor::from_values(std::vector<float>{1, infinity}, {2, 1});
  EXPECT_EQ(mix_images(x, {.share = 1.0}).to_vector<float>(), (std::vector<float>{1, infinity}));
  EXPECT_EQ(mix_images(x, {.share = 0.0}).to_vector<float>(), (std::vector<float>{infinity, 1}));
}

TEST(EraseImages, RefusesWrongCalls) {
  const Tensor images = Tensor::zeros({1, 3, 4, 4}), boxes = Tensor::zeros({1, 4}, DType::kInt32);
  EXPECT_ERROR(erase_images(images, boxes, {.values = {1, 2}}),
               "[erase_images] expected 1 or 3 values but got 2");
  EXPECT_ERROR(erase_images(images, boxes, {.values = {std::nanf("")}}),
               "[erase_images] expected a finite value but got nan");
  EXPECT_THROW(erase_images(images, Tensor::zeros({2, 4}, DType::kInt32)), InvalidArgument);
  EXPECT_ERROR(erase_images(Tensor::zeros({1, 129, 1, 1}), boxes),
               "[erase_images] expected at most 128 channels but got 129");
}

/// Both devices, as wide stores are aligned or not: sizes that are multiples of 16 and others.
TEST(ResizeImages, GivesBytesRoundedToNearest) {
  constexpr int64_t kRows = 23, kColumns = 31;
  const Tensor pixels = Tensor::empty({kRows * kColumns * 3}, DType::kUInt8);
  for (int64_t i = 0; i < pixels.numel(); ++i) pixels.data<uint8_t>()[i] = static_cast<uint8_t>(i * i % 251);
  const Tensor extents = Tensor::from_values(std::vector<int64_t>{0, kRows, kColumns}, {1, 3});
  const Tensor boxes = Tensor::from_values(std::vector<double>{1.5, 2, 20, 26.5, 1}, {1, 5});
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      for (const int64_t width : {int64_t{16}, int64_t{70}, int64_t{128}}) {
        ImageOutput output{.height = 13, .width = width, .layout = layout, .std = {1.0F / 255.0F}};
        const auto resized = [&] {
          return resize_images(pixels.to(device), extents.to(device), boxes.to(device), output);
        };
        const auto exact = resized().to_vector<float>();
        output.dtype = DType::kUInt8;
        const auto bytes = resized().to_vector<uint8_t>();
        ASSERT_EQ(bytes.size(), exact.size());
        for (size_t i = 0; i < bytes.size(); ++i) ASSERT_NEAR(bytes[i], exact[i], 0.501F) << i;
      }
    }
  }
}

TEST(CropImages, GivesBytesAsTheyAreOnEveryDevice) {
  constexpr int64_t kSide = 37;
  const Tensor images = Tensor::empty({2, kSide, kSide, 3}, DType::kUInt8);
  for (int64_t i = 0; i < images.numel(); ++i) images.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  const Tensor windows = Tensor::from_values(std::vector<int32_t>{0, 0, 0, 0, 0, 0}, {2, 3});
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const ImageOutput output{
        .height = kSide, .width = kSide, .dtype = DType::kUInt8, .layout = Layout::kNHWC};
    EXPECT_EQ(crop_images(images.to(device), windows.to(device), output).to_vector<uint8_t>(),
              images.to_vector<uint8_t>());
  }
}

}  // namespace
}  // namespace sinter::ops
