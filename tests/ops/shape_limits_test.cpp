// Numbers of users at the ends of 64 bits: every op refuses shapes that cannot be, before it takes memory.
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/core/base/checked.h>
#include <sinter/core/op/call.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/resize_images/resize_images.h>
#include <sinter/ops/slice/slice.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

TEST(ShapeLimits, ArithmeticThatOverflowsIsAnError) {
  EXPECT_EQ(checked_add("t", kMost - 1, 1), kMost);
  EXPECT_EQ(checked_add("t", kLeast, kMost), -1);
  EXPECT_EQ(message_of([] { checked_add("t", kMost, 1); }), "[t] 9223372036854775807 + 1 is beyond 64 bits");
  EXPECT_EQ(checked_multiply("t", int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(message_of([] { checked_multiply("t", int64_t{1} << 32, int64_t{1} << 31); }),
            "[t] 4294967296 * 2147483648 is beyond 64 bits");
}

TEST(ShapeLimits, TheBytesOfEveryShapeAreANumber) {
  // 2^61 doubles have 2^64 bytes, which is 0 in 64 bits.
  EXPECT_EQ(message_of([] { Tensor::zeros({int64_t{1} << 61}, DType::kFloat64); }),
            "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ((TensorSpec{Shape{int64_t{1} << 59}, DType::kFloat64, {}}.bytes()), size_t{1} << 62);
}

TEST(ShapeLimits, Pad) {
  const Tensor x = Tensor::zeros({5});
  EXPECT_EQ(message_of([&] {
              pad(x, {{kMost, kMost}});
            }),
            "[pad] 9223372036854775807 + 9223372036854775807 is beyond 64 bits");
  EXPECT_EQ(message_of([&] { pad(x, {{kMost - 2, 0}}); }), "[pad] 5 + 9223372036854775805 is beyond 64 bits");
  EXPECT_EQ(message_of([&] {
              pad(x, {{int64_t{1} << 60, 0}});
            }),
            "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] {
              pad(Tensor::zeros({2, 3}), {{kMost, kMost}, {0, 0}});
            }),
            "[pad] 9223372036854775807 + 9223372036854775807 is beyond 64 bits");
  EXPECT_EQ(message_of([&] {
              vjp::pad(x, {{kMost, kMost}});
            }),
            "[pad_grad] 9223372036854775807 + 9223372036854775807 is beyond 64 bits");
  EXPECT_EQ(message_of([&] {
              vjp::pad(x, {{kMost, 0}});
            }),
            "[pad_grad] padding 9223372036854775807 and 0 exceeds extent 5 of axis 0");
}

TEST(ShapeLimits, Slice) {
  const Tensor x = Tensor::zeros({5});
  for (const auto& [begin, end] : {std::pair{kLeast, int64_t{3}},
                                   {int64_t{0}, kMost},
                                   {kMost, kMost},
                                   {kLeast, kLeast},
                                   {kMost, kLeast}}) {
    EXPECT_NE(message_of([&, b = begin, e = end] { slice(x, 0, b, e); }).find("[slice] expected 0 <= begin"),
              std::string::npos)
        << begin << " " << end;
  }
}

TEST(ShapeLimits, Concat) {
  const Tensor x = Tensor::zeros({0, int64_t{1} << 59});
  EXPECT_EQ(message_of([&] { concat({x, x}, 1); }), "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] { concat(std::vector<Tensor>(16, x), 1); }),
            "[concat] 8646911284551352320 + 576460752303423488 is beyond 64 bits");
}

TEST(ShapeLimits, Reshape) {
  const Tensor x = Tensor::zeros({4});
  EXPECT_EQ(message_of([&] { reshape(x, {kMost, kMost}); }), "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] { reshape(x, {kLeast}); }),
            "[shape] expected extents >= 0 but axis 0 has -9223372036854775808");
}

TEST(ShapeLimits, Convolution) {
  const Tensor x = Tensor::zeros({1, 1, 4, 4}), weight = Tensor::zeros({1, 1, 2, 2});
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();  // of an option
  for (const int64_t number : {kMost, kLeast, kLargest + 1}) {
    const auto bound_beside = [&](int64_t least) {
      return number < 0 ? fmt::format("at least {} but got", least)
                        : fmt::format("at most {} but got", kLargest);
    };
    EXPECT_NE(message_of([&] {
                conv2d(x, weight, {}, {.stride = {number, 1}});
              }).find("[conv2d] expected a stride of " + bound_beside(1)),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                conv2d(x, weight, {}, {.padding = {1, number}});
              }).find("[conv2d] expected a padding of " + bound_beside(0)),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                conv2d(x, weight, {}, {.dilation = {number, number}});
              }).find("[conv2d] expected a dilation of " + bound_beside(1)),
              std::string::npos);
  }
  // A long filter times a long dilation: 2^32 * (2^31 - 1) is still a number, 2^33 times that is none.
  const Conv2dAttributes dilated{.dilation = {1, kLargest}};
  EXPECT_EQ(message_of([&] {
              conv2d_geometry("c", {1, 1, 1, 4}, {1, 1, 1, (int64_t{1} << 33) + 1}, dilated);
            }),
            "[c] 2147483647 * 8589934592 is beyond 64 bits");
  EXPECT_NE(message_of([&] {
              conv2d_geometry("c", {1, 1, 1, 4}, {1, 1, 1, (int64_t{1} << 32) + 1}, dilated);
            }).find("the filter is larger than the padded input"),
            std::string::npos);
  // The largest output that padding and kernel make is no shape.
  EXPECT_EQ(message_of([&] {
              conv2d(x, Tensor::zeros({1, 1, 1, 1}), {}, {.padding = {kLargest, kLargest}});
            }),
            "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] {
              vjp::conv2d_input(Tensor::zeros({1, 1, 1, 1}), weight, {kLargest, kLargest});
            }),
            "[shape] the number of elements exceeds 2^59");
}

TEST(ShapeLimits, ConvolutionsOfPaddingAlone) {
  // Three outputs an axis, of which one reads the image, and 2^32 columns of padding that need no memory.
  constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
  const Conv2dAttributes options{.stride = {kFar, kFar}, .padding = {kFar, kFar}};
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    Conv2dAttributes own = options;
    own.layout = layout;
    const Tensor x = Tensor::full({1, 1, 1, 1}, 3.0), weight = Tensor::full({1, 1, 1, 1}, 2.0);
    const Tensor y = conv2d(x, weight, {}, own);
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 6, 0, 0, 0, 0}));
    EXPECT_EQ(vjp::conv2d_input(y, weight, {1, 1}, own).item(), 12);
    EXPECT_EQ(vjp::conv2d_weight(y, x, {1, 1}, own).item(), 18);
  }
  const Tensor half = Tensor::full({1, 1, 1, 1}, 3.0, DType::kFloat16);
  EXPECT_NE(message_of<Unsupported>([&] { conv2d(half, half, {}, options); }).find("conv2d"),
            std::string::npos);
}

TEST(ShapeLimits, Pooling) {
  const Tensor x = Tensor::zeros({1, 1, 4, 4});
  for (const int64_t number : {kMost, kLeast, (int64_t{1} << 30) + 1}) {
    EXPECT_NE(message_of([&] {
                max_pool2d(x, {number, 2});
              }).find("[max_pool2d] expected a kernel of height"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                avg_pool2d(x, 2, {.stride = {2, number}});
              }).find("[avg_pool2d] expected a stride of width"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                avg_pool2d(x, 2, {.padding = {number, 0}});
              }).find("[avg_pool2d] expected padding of height"),
              std::string::npos);
  }
  EXPECT_EQ(message_of([&] {
              vjp::global_avg_pool2d(Tensor::zeros({1, 1}), {Layout::kNCHW, kMost, kMost});
            }),
            "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] {
              vjp::avg_pool2d(x, {{}, kMost, kMost});
            }),
            "[shape] the number of elements exceeds 2^59");
}

TEST(ShapeLimits, Images) {
  const Tensor images = Tensor::zeros({1, 2, 2, 1}, DType::kUInt8);
  const Tensor windows = Tensor::zeros({1, 3}, DType::kInt32);
  EXPECT_EQ(message_of([&] { crop_images(images, windows, {.height = kMost, .width = kMost}); }),
            "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] { crop_images(images, windows, {.height = kLeast, .width = 1}); }),
            "[crop_images] expected a size >= 0 but got -9223372036854775808 x 1");
  const Tensor extents = Tensor::zeros({1, 3}, DType::kInt64), boxes = Tensor::zeros({1, 5}, DType::kFloat64);
  EXPECT_EQ(message_of([&] {
              resize_images(Tensor::zeros({4}, DType::kUInt8), extents, boxes,
                            {.height = kMost, .width = kMost});
            }),
            "[shape] the number of elements exceeds 2^59");
}

}  // namespace
}  // namespace sinter::ops
