// crop_images and resize_images: known answers, and calls that are refused.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/resize_images/resize_images.h>

#include "ops/ops_test_support.h"

#define EXPECT_ERROR(call, text) EXPECT_EQ(message_of([&] { (call); }), text)

namespace sinter::ops {
namespace {

using testing::message_of;

std::vector<float> ramp(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

Tensor bytes(const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, DType::kUInt8);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<uint8_t>()[i] = static_cast<uint8_t>(i);
  return tensor;
}

/// Gives 8-bit values as they are.
ImageOutput plain(int64_t height, int64_t width, Layout layout = Layout::kNCHW) {
  return {.height = height, .width = width, .layout = layout, .std = {1.0f / 255.0f}};
}

Tensor window(int32_t top, int32_t left, int32_t mirrored) {
  return Tensor::from_values(std::vector<int32_t>{top, left, mirrored}, {1, 3});
}

void expect_values(const Tensor& tensor, const std::vector<float>& expected) {
  const auto values = tensor.to_vector<float>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-4) << i;
}

TEST(CropImages, ShowsTheWindow) {
  const Tensor images = bytes({1, 3, 4, 1});  // 0 1 2 3 / 4 5 6 7 / 8 9 10 11
  expect_values(crop_images(images, window(0, 0, 0), plain(3, 4)), ramp(12));
  expect_values(crop_images(images, window(1, 1, 0), plain(2, 3)), {5, 6, 7, 9, 10, 11});
  expect_values(crop_images(images, window(1, 1, 1), plain(2, 3)), {7, 6, 5, 11, 10, 9});
  expect_values(crop_images(images, window(-1, 2, 0), plain(2, 4)), {0, 0, 0, 0, 2, 3, 0, 0});
  expect_values(crop_images(images, window(-1, 2, 0), plain(2, 4), {.border = PadMode::kReflect}),
                {6, 7, 6, 5, 2, 3, 2, 1});
  expect_values(crop_images(images, window(-1, 2, 1), plain(2, 4), {.border = PadMode::kReplicate}),
                {3, 3, 3, 2, 3, 3, 3, 2});
}

TEST(CropImages, WritesBothLayouts) {
  const Tensor images = bytes({1, 1, 2, 3});  // two pixels of three channels
  expect_values(crop_images(images, window(0, 0, 0), plain(1, 2, Layout::kNHWC)), {0, 1, 2, 3, 4, 5});
  expect_values(crop_images(images, window(0, 0, 0), plain(1, 2, Layout::kNCHW)), {0, 3, 1, 4, 2, 5});
  const ImageOutput scaled{
      .height = 1, .width = 2, .layout = Layout::kNHWC, .mean = {0.1f, 0.2f, 0.3f}, .std = {1, 0.5f, 0.25f}};
  std::vector<float> expected;
  for (int i = 0; i < 6; ++i) {
    const auto c = static_cast<size_t>(i % 3);
    expected.push_back((static_cast<float>(i) / 255.0f - scaled.mean[c]) / scaled.std[c]);
  }
  expect_values(crop_images(images, window(0, 0, 0), scaled), expected);
}

TEST(CropImages, ReadsNothingOutsideWhateverTheWindow) {
  // What lies beside the images in their storage would show as 200.
  const Shape shape{1, 3, 5, 3};
  const Tensor room = Tensor::full({3 * shape.numel()}, 200, DType::kUInt8);
  std::copy_n(bytes(shape).data<uint8_t>(), shape.numel(), room.data<uint8_t>() + shape.numel());
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const Tensor images = Tensor::over(room.to(device).storage(), static_cast<size_t>(shape.numel()),
                                       {shape, DType::kUInt8, device});
    for (const PadMode border : {PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate}) {
      for (const int32_t top : {INT32_MIN, INT32_MIN + 1, -4, 0, 7, INT32_MAX - 1, INT32_MAX}) {
        for (const int32_t left : {INT32_MIN, -3, 2, INT32_MAX}) {
          const Tensor batch =
              crop_images(images, window(top, left, left & 1).to(device), plain(6, 7), {.border = border});
          for (const float value : batch.to_vector<float>()) {
            ASSERT_GE(value, 0.0f) << to_string(device) << " at " << top << ", " << left;
            ASSERT_LE(value, 44.01f) << to_string(device) << " at " << top << ", " << left;
          }
        }
      }
    }
  }
}

TEST(CropImages, RefusesWrongCalls) {
  const Tensor images = bytes({1, 3, 4, 1});
  EXPECT_ERROR(crop_images(images, window(0, 0, 0), {.height = -1, .width = 1}),
               "[crop_images] expected a size >= 0 but got -1 x 1");
  EXPECT_ERROR(crop_images(images, window(0, 0, 0), {.height = 1, .width = 1, .dtype = DType::kFloat64}),
               "[crop_images] expected float32, float16, bfloat16 or uint8 but got float64");
  EXPECT_ERROR(crop_images(images, window(0, 0, 0), {.height = 1, .width = 1, .mean = {0, 0}}),
               "[crop_images] expected 1 or 1 means but got 2");
  EXPECT_ERROR(crop_images(images, window(0, 0, 0), {.height = 1, .width = 1, .std = {0}}),
               "[crop_images] expected a deviation > 0 but got 0");
  EXPECT_ERROR(crop_images(bytes({1, 1, 1, 129}), window(0, 0, 0), {.height = 1, .width = 1}),
               "[crop_images] expected at most 128 channels but got 129");
}

TEST(ResizeImages, AveragesUnderTheTriangle) {
  const Tensor pixels = bytes({4});  // a row of 0 1 2 3
  const Tensor extents = Tensor::from_values(std::vector<int64_t>{0, 1, 4}, {1, 3});
  const auto resized = [&](std::vector<double> box, int64_t width) {
    return resize_images(pixels, extents, Tensor::from_values(box, {1, 5}), plain(1, width), {.channels = 1});
  };
  expect_values(resized({0, 0, 1, 4, 0}, 4), {0, 1, 2, 3});
  expect_values(resized({0, 0, 1, 4, 1}, 4), {3, 2, 1, 0});
  // Twice as many: positions 1/4, 3/4 and so on, held at the ends.
  expect_values(resized({0, 0, 1, 4, 0}, 8), {0, 0.25f, 0.75f, 1.25f, 1.75f, 2.25f, 2.75f, 3});
  // Half as many: weights 3, 3, 1 of the pixels 0 1 2 about the centre 1, cut off at the border.
  expect_values(resized({0, 0, 1, 4, 0}, 2), {5.0f / 7.0f, 16.0f / 7.0f});
  expect_values(resized({0, 1, 1, 2, 0}, 2), {1, 2});
  // Beyond the image: cut down to it; and where nothing is left, the nearest pixel.
  expect_values(resized({-5, 2, 9, 40, 0}, 2), {2, 3});
  expect_values(resized({0, 90, 1, 2, 0}, 2), {3, 3});
}

TEST(ResizeImages, ShowsImagesThatAreNotThereInBlack) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<std::vector<int64_t>> wrong = {{-1, 2, 2},    {1, 2, 2},     {0, 3, 2}, {0, kMost, 2},
                                                   {0, 2, kMost}, {kMost, 2, 2}, {0, 0, 2}, {0, 2, -2}};
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const Tensor pixels = bytes({12}).to(device);
    const Tensor boxes = Tensor::from_values(std::vector<double>{0, 0, 2, 2, 0}, {1, 5}).to(device);
    for (const auto& extent : wrong) {
      const Tensor extents = Tensor::from_values(extent, {1, 3}).to(device);
      expect_values(resize_images(pixels, extents, boxes, plain(1, 2)), std::vector<float>(6, 0.0f));
    }
    const Tensor right = Tensor::from_values(std::vector<int64_t>{0, 2, 2}, {1, 3}).to(device);
    EXPECT_GT(resize_images(pixels, right, boxes, plain(1, 2)).to_vector<float>()[0], 0.0f);
  }
}

TEST(ResizeImages, ReadsNothingOutsideWhateverTheBox) {
  // A picture of 0 to 35 in the middle of a storage that is 200 elsewhere.
  const int64_t count = 3 * 4 * 3;
  const Tensor room = Tensor::full({3 * count}, 200, DType::kUInt8);
  std::copy_n(bytes({count}).data<uint8_t>(), count, room.data<uint8_t>() + count);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kHostile[] = {
      -kInfinity, -1e300, -7.25, 0.0, 2.5, 3.0, 1e18, kInfinity, std::numeric_limits<double>::quiet_NaN()};
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const Tensor pixels =
        Tensor::over(room.to(device).storage(), static_cast<size_t>(count), {{count}, DType::kUInt8, device});
    const Tensor extents = Tensor::from_values(std::vector<int64_t>{0, 3, 4}, {1, 3}).to(device);
    for (const double begin : kHostile) {
      for (const double extent : kHostile) {
        const std::vector<double> box = {begin, extent, extent, begin, 1};
        const Tensor batch =
            resize_images(pixels, extents, Tensor::from_values(box, {1, 5}).to(device), plain(3, 70));
        for (const float value : batch.to_vector<float>()) {
          ASSERT_GE(value, 0.0f) << to_string(device) << " box " << begin << ", " << extent;
          ASSERT_LE(value, 35.01f) << to_string(device) << " box " << begin << ", " << extent;
        }
      }
    }
  }
}

TEST(ResizeImages, RefusesOtherNumbersOfChannels) {
  const Tensor extents = Tensor::from_values(std::vector<int64_t>{0, 1, 1}, {1, 3});
  const Tensor boxes = Tensor::from_values(std::vector<double>{0, 0, 1, 1, 0}, {1, 5});
  EXPECT_ERROR(resize_images(bytes({4}), extents, boxes, plain(1, 1), {.channels = 2}),
               "[resize_images] expected 1 or 3 channels but got 2");
}

}  // namespace
}  // namespace sinter::ops
