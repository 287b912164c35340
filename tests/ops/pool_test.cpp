// Pooling beyond its samples: ties, NaN, ceil_mode, index dtypes, errors.
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/autograd/grad.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reduce/reduce.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

/// A float32 image of one channel in the given layout.
Tensor image(const std::vector<float>& values, int64_t height, int64_t width, Layout layout) {
  return Tensor::from_values(
      values, layout == Layout::kNCHW ? Shape{1, 1, height, width} : Shape{1, height, width, 1});
}

class PoolTest : public testing::TestWithParam<Layout> {};

TEST_P(PoolTest, MaxTakesTheFirstOfEqualsAndTheLastNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), low = -std::numeric_limits<float>::infinity();
  const Tensor x = image({5, 5, nan, 1, low, low,  //
                          5, 5, 2, nan, low, low},
                         2, 6, GetParam());
  const std::vector<Tensor> outputs = call(builtin("max_pool2d"), {x}, PoolAttributes{.layout = GetParam()});
  EXPECT_EQ(outputs[0].data<float>()[0], 5.0F);
  EXPECT_TRUE(std::isnan(outputs[0].data<float>()[1]));
  EXPECT_EQ(outputs[0].data<float>()[2], low);
  EXPECT_EQ(outputs[1].to_vector<uint8_t>(), (std::vector<uint8_t>{0, 3, 0}));
}

TEST_P(PoolTest, MaxNeverTakesPadding) {
  const float low = -std::numeric_limits<float>::infinity();
  const PoolAttributes options{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .layout = GetParam()};
  const std::vector<Tensor> outputs =
      call(builtin("max_pool2d"), {image({low, -3, -2, -1}, 2, 2, GetParam())}, options);
  EXPECT_EQ(outputs[0].to_vector<float>(), std::vector<float>{-1});
  EXPECT_EQ(outputs[1].to_vector<uint8_t>(), std::vector<uint8_t>{8});
  const std::vector<Tensor> lowest =
      call(builtin("max_pool2d"), {image({low, low, low, low}, 2, 2, GetParam())}, options);
  EXPECT_EQ(lowest[1].to_vector<uint8_t>(), std::vector<uint8_t>{4});  // the first place inside the image
}

TEST_P(PoolTest, IndicesThatNameNoPixelMoveNoGradient) {
  const PoolAttributes options{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .layout = GetParam()};
  const Shape shape = GetParam() == Layout::kNCHW ? Shape{1, 1, 2, 2} : Shape{1, 2, 2, 1};
  const Tensor dy = image({1, 2, 4, 8}, 2, 2, GetParam());
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    // Padding above, beyond the window, padding on the right, and one that is right: the second of its row.
    const Tensor indices = Tensor::from_values<uint8_t>({1, 255, 2, 4}, shape);
    const Tensor dx = vjp::max_pool2d(dy.to(device), indices.to(device), {options, 3, 3});
    EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 4, 0, 0, 0, 8})) << to_string(device);
  }
  // Wide windows have wide indices, which can be negative.
  const PoolAttributes wide{.kernel = {16, 16}, .stride = {16, 16}, .layout = GetParam()};
  const Tensor one = image({1}, 1, 1, GetParam());
  for (const int32_t index :
       {-1, 256, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    const Tensor indices = Tensor::from_values<int32_t>({index}, one.shape());
    const Tensor dx = vjp::max_pool2d(one, indices, {wide, 16, 16});
    EXPECT_EQ(dx.to_vector<float>(), std::vector<float>(256, 0.0F)) << index;
  }
}

TEST_P(PoolTest, OverlappingWindowsAddTheirGradients) {
  const PoolAttributes options{.kernel = {2, 2}, .stride = {1, 1}, .layout = GetParam()};
  const std::vector<Tensor> outputs =
      call(builtin("max_pool2d"), {image({0, 0, 0, 0, 9, 0, 0, 0, 0}, 3, 3, GetParam())}, options);
  const Tensor dx = vjp::max_pool2d(image({1, 2, 4, 8}, 2, 2, GetParam()), outputs[1], {options, 3, 3});
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 15, 0, 0, 0, 0}));
}

TEST_P(PoolTest, LargeWindowsHaveWideIndices) {
  std::vector<float> values(256);
  values[255] = 1.0F;
  const PoolAttributes options{.kernel = {16, 16}, .layout = GetParam()};
  const std::vector<Tensor> outputs =
      call(builtin("max_pool2d"), {image(values, 16, 16, GetParam())}, options);
  EXPECT_EQ(outputs[1].to_vector<int32_t>(), std::vector<int32_t>{255});
  const std::vector<Tensor> small = call(builtin("max_pool2d"), {image(values, 16, 16, GetParam())},
                                         PoolAttributes{.kernel = {16, 15}, .layout = GetParam()});
  EXPECT_EQ(small[1].dtype(), DType::kUInt8);
}

TEST_P(PoolTest, CeilModeKeepsWindowsThatStartInTheImage) {
  // Height and width of the pooled image, which differ in extent, kernel and stride.
  const auto extents = [&](int64_t height, int64_t width, PoolAttributes options) {
    options.layout = GetParam();
    const bool first = GetParam() == Layout::kNCHW;
    const Tensor y =
        call(builtin("max_pool2d"),
             {Tensor::zeros(first ? Shape{2, 3, height, width} : Shape{2, height, width, 3})}, options)
            .front();
    EXPECT_EQ(y.size(0), 2);
    EXPECT_EQ(y.size(first ? 1 : 3), 3);
    return std::pair(y.size(first ? 2 : 1), y.size(first ? 3 : 2));
  };
  const PoolAttributes up{.kernel = {2, 3}, .stride = {2, 3}, .ceil_mode = true};
  EXPECT_EQ(extents(5, 7, up), std::pair(int64_t{3}, int64_t{3}));
  EXPECT_EQ(extents(4, 6, up), std::pair(int64_t{2}, int64_t{2}));
  // A second window would start behind the image.
  EXPECT_EQ(extents(2, 2, {.kernel = {1, 1}, .stride = {3, 2}, .ceil_mode = true}),
            std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(extents(5, 7, {.kernel = {2, 3}, .stride = {2, 3}}), std::pair(int64_t{2}, int64_t{2}));
  // PyTorch divides an overhanging window by its part inside the padded image: 3 columns of 5, the last
  // window has 1.
  const Tensor y = avg_pool2d(image({1, 2, 3, 4, 5}, 1, 5, GetParam()), {1, 2},
                              {.stride = {1, 2}, .layout = GetParam(), .ceil_mode = true});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1.5F, 3.5F, 5.0F}));
}

TEST_P(PoolTest, AverageCountsPaddingOnlyIfAsked) {
  PoolAttributes options{.kernel = {1, 3}, .stride = {1, 1}, .padding = {0, 1}, .layout = GetParam()};
  const Tensor x = image({3, 6, 9}, 1, 3, GetParam());
  EXPECT_EQ(call_single(builtin("avg_pool2d"), {x}, options).to_vector<float>(),
            (std::vector<float>{3, 6, 5}));
  options.count_include_pad = false;
  EXPECT_EQ(call_single(builtin("avg_pool2d"), {x}, options).to_vector<float>(),
            (std::vector<float>{4.5F, 6, 7.5F}));
}

TEST_P(PoolTest, AverageDividesByADivisorThatIsGiven) {
  // With padding and an overhanging window, which else count for 3, 3 and 2.
  const PoolAttributes options{.kernel = {1, 3},
                               .stride = {1, 2},
                               .padding = {0, 1},
                               .layout = GetParam(),
                               .ceil_mode = true,
                               .divisor = 2};
  const Tensor x = image({3, 6, 9, 12}, 1, 4, GetParam());
  EXPECT_EQ(call_single(builtin("avg_pool2d"), {x}, options).to_vector<float>(),
            (std::vector<float>{4.5F, 13.5F, 6}));
  const Tensor dx = vjp::avg_pool2d(image({2, 4, 8}, 1, 3, GetParam()), {options, 1, 4});
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{1, 3, 2, 6}));
}

TEST_P(PoolTest, PaddingMayDifferFromSideToSide) {
  const Tensor x = image({1, -2, 3, 4, -5, 6}, 2, 3, GetParam());
  // Windows of 2 x 2 around a row more above and a column more on the right.
  const PoolAttributes options{
      .kernel = {2, 2}, .stride = {1, 1}, .padding = {1, 0}, .padding_after = {0, 1}, .layout = GetParam()};
  EXPECT_EQ(call(builtin("max_pool2d"), {x}, options).front().to_vector<float>(),
            (std::vector<float>{1, 3, 3, 4, 6, 6}));
  EXPECT_EQ(call_single(builtin("avg_pool2d"), {x}, options).to_vector<float>(),
            (std::vector<float>{-0.25F, 0.25F, 0.75F, -0.5F, 0.5F, 2.25F}));
  PoolAttributes inside = options;
  inside.count_include_pad = false;
  EXPECT_EQ(call_single(builtin("avg_pool2d"), {x}, inside).to_vector<float>(),
            (std::vector<float>{-0.5F, 0.5F, 3, -0.5F, 0.5F, 4.5F}));
}

TEST_P(PoolTest, DilatedWindowsSkipElements) {
  const Tensor x = image({0, 9, 1, 9, 2, 9, 9, 9, 9, 9, 3, 9, 4, 9, 5}, 3, 5, GetParam());
  const PoolAttributes options{.stride = {1, 1}, .dilation = {2, 2}, .layout = GetParam()};
  const std::vector<Tensor> outputs = call(builtin("max_pool2d"), {x}, options);
  EXPECT_EQ(outputs[0].to_vector<float>(), (std::vector<float>{4, 9, 5}));
  EXPECT_EQ(outputs[1].to_vector<uint8_t>(), (std::vector<uint8_t>{3, 0, 3}));
  const Tensor dx = vjp::max_pool2d(image({1, 2, 4}, 1, 3, GetParam()), outputs[1], {options, 3, 5});
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4}));
}

TEST_P(PoolTest, DilatedWindowsMayMissTheImage) {
  // Elements of the two windows over one pixel: -2 and 1, -1 and 2.
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const Tensor x = image({7}, 1, 1, GetParam()).to(device);
    const PoolAttributes options{.kernel = {1, 2},
                                 .stride = {1, 1},
                                 .padding = {0, 2},
                                 .dilation = {1, 3},
                                 .layout = GetParam(),
                                 .ceil_mode = true};
    const std::vector<Tensor> outputs = call(builtin("max_pool2d"), {x}, options);
    const float low = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(outputs[0].to_vector<float>(), (std::vector<float>{low, low})) << to_string(device);
    const Tensor dy = image({1, 2}, 1, 2, GetParam()).to(device);
    EXPECT_EQ(vjp::max_pool2d(dy, outputs[1], {options, 1, 1}).to_vector<float>(), std::vector<float>{0})
        << to_string(device);
    // Nor does a gradient of the gradient come from a window without an element, beside others that have one.
    const PoolAttributes wide{
        .kernel = {2, 2}, .stride = {1, 1}, .padding = {2, 2}, .dilation = {3, 3}, .layout = GetParam()};
    const Tensor pixels = image({1, 2, 3, 4}, 2, 2, GetParam()).to(device).set_requires_grad(true);
    const Tensor y = call(builtin("max_pool2d"), {pixels}, wide)[0];
    const Tensor weights = Tensor::full_like(y, 1.0).set_requires_grad(true);
    const Tensor dx = grad({y}, {pixels}, {.gradients = {weights}, .create_graph = true})[0];
    const Tensor per_window = grad({ops::sum(dx * dx)}, {weights})[0];
    // A window of value v adds twice the gradient of its pixel; one without an element adds nothing.
    const std::vector<float> got = per_window.to_vector<float>(), values = y.to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i] == 0.0F, values[i] == low) << i;
  }
}

TEST_P(PoolTest, WindowsFarBeyondTheImageCostNoMoreThanTheImage) {
  // The image lies in the middle of the one window; rows and columns of 2^20 and 2^30 elements are never
  // made.
  const Tensor x = image({1, 2, 3, 4, 5, 7}, 2, 3, GetParam());
  for (const int64_t kernel : {int64_t{1} << 20, int64_t{1} << 30}) {
    const PoolAttributes average{.kernel = {kernel, kernel},
                                 .padding = {kernel / 2, kernel / 2},
                                 .layout = GetParam(),
                                 .count_include_pad = false};
    // The stride is the kernel's: one window, which holds the whole image.
    const Tensor mean = call_single(builtin("avg_pool2d"), {x}, average);
    ASSERT_EQ(mean.numel(), 1);
    EXPECT_FLOAT_EQ(mean.data<float>()[0], 22.0F / 6.0F);
    const Tensor dx = vjp::avg_pool2d(Tensor::full(mean.shape(), 12.0), {average, 2, 3});
    EXPECT_EQ(dx.to_vector<float>(), std::vector<float>(6, 2.0F));
  }
  for (const std::array<int64_t, 2> kernel : {std::array<int64_t, 2>{1 << 20, 1 << 10}, {2, 1 << 29}}) {
    const PoolAttributes largest{
        .kernel = kernel, .padding = {kernel[0] / 2, kernel[1] / 2}, .layout = GetParam()};
    const std::vector<Tensor> outputs = call(builtin("max_pool2d"), {x}, largest);
    ASSERT_EQ(outputs[1].dtype(), DType::kInt32);
    EXPECT_EQ(outputs[0].to_vector<float>().back(), 7.0F);
    const auto places = outputs[1].to_vector<int32_t>();
    const int64_t row = outputs[0].numel() > 1 ? 0 : kernel[0] / 2 + 1;  // of the 7 in the last window
    EXPECT_EQ(places.back(), row * kernel[1] + kernel[1] / 2 + 2);
    const Tensor dx = vjp::max_pool2d(Tensor::full(outputs[0].shape(), 1.0), outputs[1], {largest, 2, 3});
    EXPECT_EQ(dx.to_vector<float>().back(), 1.0F);
  }
}

TEST_P(PoolTest, WideWindowsAgreeWithTheWindowOverAPaddedImage) {
  // Kernels on both sides of where the kernels for rows give way to those for pixels.
  for (const int64_t kernel : {5, 61, 75, 76, 77, 90, 149, 150}) {
    std::vector<float> values(2 * 4 * 5);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7 + 3) % 11);
    const bool first = GetParam() == Layout::kNCHW;
    const Tensor x = Tensor::from_values(values, first ? Shape{2, 1, 4, 5} : Shape{2, 4, 5, 1});
    const PoolAttributes options{
        .kernel = {3, kernel}, .stride = {1, 2}, .padding = {1, kernel / 2}, .layout = GetParam()};
    const std::vector<float> sums = call_single(builtin("avg_pool2d"), {x}, options).to_vector<float>();
    const std::vector<Tensor> largest = call(builtin("max_pool2d"), {x}, options);
    const int64_t out = (5 + 2 * (kernel / 2) - kernel) / 2 + 1;
    ASSERT_EQ(sums.size(), static_cast<size_t>(2 * 4 * out));
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto ox = static_cast<int64_t>(i) % out, oy = static_cast<int64_t>(i) / out % 4;
      float sum = 0, most = -1;
      for (int64_t row = std::max<int64_t>(oy - 1, 0); row < std::min<int64_t>(oy + 2, 4); ++row) {
        for (int64_t column = 0; column < 5; ++column) {
          const int64_t tap = column - (2 * ox - kernel / 2);
          if (tap < 0 || tap >= kernel) continue;
          const float value =
              values[static_cast<size_t>((static_cast<int64_t>(i) / (4 * out) * 4 + row) * 5 + column)];
          sum += value;
          most = std::max(most, value);
        }
      }
      EXPECT_NEAR(sums[i], sum / static_cast<float>(3 * kernel), 1e-5F) << kernel << " element " << i;
      EXPECT_EQ(largest[0].data<float>()[i], most) << kernel << " element " << i;
    }
  }
}

TEST(Pool, LayoutsAgreeWithAnyNumberOfChannels) {
  // On both sides of whole vectors and of blocks of channels; 600 are more than a block of averages.
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t channels : {1, 3, 15, 16, 17, 31, 48, 61, 64, 67, 96, 130, 600}) {
      SCOPED_TRACE(fmt::format("{} {} channels", to_string(dtype), channels));
      SampleMaker maker(static_cast<uint64_t>(channels), dtype);
      const Tensor x = maker.tensor({3, channels, 9, 21});
      const Tensor last = permute(x, {0, 2, 3, 1});
      const PoolAttributes options{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
      PoolAttributes options_last = options;
      options_last.layout = Layout::kNHWC;
      const auto same = [](const Tensor& a, const Tensor& b) {
        return a.spec() == b.spec() && std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()) == 0;
      };
      const auto to_first = [](const Tensor& t) { return permute(t, {0, 3, 1, 2}); };
      const std::vector<Tensor> y = call(builtin("max_pool2d"), {x}, options);
      const std::vector<Tensor> y_last = call(builtin("max_pool2d"), {last}, options_last);
      EXPECT_TRUE(same(y[0], to_first(y_last[0])));
      EXPECT_TRUE(same(y[1], to_first(y_last[1])));
      const Tensor dy = maker.tensor(y[0].shape());
      EXPECT_TRUE(
          same(vjp::max_pool2d(dy, y[1], {options, 9, 21}),
               to_first(vjp::max_pool2d(permute(dy, {0, 2, 3, 1}), y_last[1], {options_last, 9, 21}))));
      const auto near = [&](const Tensor& a, const Tensor& b) {
        const ReferenceTensor got = reference_of(a), want = reference_of(b);
        for (int64_t i = 0; i < a.numel(); ++i) ASSERT_NEAR(got[i], want[i], 4 * default_tolerance(dtype));
      };
      near(global_avg_pool2d(last, {.layout = Layout::kNHWC}), global_avg_pool2d(x));
      const Tensor means = maker.tensor({3, channels});
      EXPECT_TRUE(same(to_first(vjp::global_avg_pool2d(means, {Layout::kNHWC, 9, 21})),
                       vjp::global_avg_pool2d(means, {Layout::kNCHW, 9, 21})));
    }
  }
}

TEST(Pool, RefusesWindowsWhosePlacesHaveNoNumber) {
  const Tensor x = Tensor::zeros({1, 1, 4, 4});
  const PoolAttributes options{.kernel = {1 << 16, 1 << 15}, .padding = {1 << 15, 1 << 14}};
  EXPECT_EQ(message_of([&] { call(builtin("max_pool2d"), {x}, options); }),
            "[max_pool2d] expected a window of at most 2147483647 elements but got 65536 x 32768");
  const Tensor dy = call_single(builtin("avg_pool2d"), {x}, options);  // an average has no places
  EXPECT_EQ(message_of([&] {
              vjp::max_pool2d(dy, Tensor::zeros(dy.shape(), DType::kInt32), {options, 4, 4});
            }),
            "[max_pool2d_grad] expected a window of at most 2147483647 elements but got 65536 x 32768");
}

TEST(Pool, SaysWhatIsWrong) {
  const Tensor x = Tensor::zeros({1, 1, 4, 4});
  EXPECT_EQ(message_of([&] {
              avg_pool2d(x, 3, {.padding = {1, -1, 0, 0}});
            }),
            "[avg_pool2d] expected padding of height >= 0 but got -1");
  EXPECT_EQ(message_of([&] {
              max_pool2d(x, {0, 2});
            }),
            "[max_pool2d] expected a kernel of height >= 1 but got 0");
  EXPECT_EQ(message_of([&] {
              avg_pool2d(x, {2, 2}, {.stride = {1, -1}});
            }),
            "[avg_pool2d] expected a stride of width >= 1, or 0 for the kernel's, but got -1");
  EXPECT_EQ(message_of([&] {
              max_pool2d(x, {3, 3}, {.padding = {2, 0}});
            }),
            "[max_pool2d] expected padding of height in [0, 1], half of the window, but got 2");
  EXPECT_EQ(message_of([&] {
              avg_pool2d(x, {3, 3}, {.padding = {0, 0, 0, 2}});
            }),
            "[avg_pool2d] expected padding of width in [0, 1], half of the window, but got 2");
  EXPECT_EQ(
      message_of([&] {
        max_pool2d(x, {3, 3}, {.padding = {2, 0, 0, 1}, .dilation = {2, 3}});
      }),
      "[max_pool2d] expected width of at least 1 output but got extent 4 with kernel 3 (dilation 3) and "
      "padding 0 and 1");
  EXPECT_EQ(message_of([&] {
              max_pool2d(x, 2, {.dilation = {0, 1}});
            }),
            "[max_pool2d] expected a dilation of height >= 1 but got 0");
  EXPECT_EQ(message_of([&] {
              avg_pool2d(x, 2, {.dilation = {1, 2}});
            }),
            "[avg_pool2d] expected no dilation but got 1 x 2");
  EXPECT_EQ(message_of([&] {
              vjp::avg_pool2d(x, {{.dilation = {1, 2}}, 8, 8});
            }),
            "[avg_pool2d_grad] expected no dilation but got 1 x 2");
  EXPECT_EQ(message_of([&] { avg_pool2d(x, 2, {.divisor = -1}); }),
            "[avg_pool2d] expected a divisor from 1 to 2^31 - 1, or 0 for none, but got -1");
  EXPECT_EQ(message_of([&] {
              max_pool2d(x, {5, 5});
            }),
            "[max_pool2d] expected height of at least 1 output but got extent 4 with kernel 5 and padding 0");
  EXPECT_EQ(message_of([&] {
              global_avg_pool2d(Tensor::zeros({1, 1, 0, 4}));
            }),
            "[global_avg_pool2d] expected height and width of at least 1 but got shape (1, 1, 0, 4)");
}

INSTANTIATE_TEST_SUITE_P(Layouts, PoolTest, testing::Values(Layout::kNCHW, Layout::kNHWC),
                         [](const auto& layout) { return std::string(to_string(layout.param)); });

}  // namespace
}  // namespace sinter::ops
