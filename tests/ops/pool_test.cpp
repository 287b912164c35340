// Pooling beyond its samples: ties, NaN, ceil_mode, index dtypes, errors.
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::ops {
namespace {

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

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
  const std::vector<Tensor> outputs = call(builtin("max_pool2d"), {x}, PoolOptions{.layout = GetParam()});
  EXPECT_EQ(outputs[0].data<float>()[0], 5.0F);
  EXPECT_TRUE(std::isnan(outputs[0].data<float>()[1]));
  EXPECT_EQ(outputs[0].data<float>()[2], low);
  EXPECT_EQ(outputs[1].to_vector<uint8_t>(), (std::vector<uint8_t>{0, 3, 0}));
}

TEST_P(PoolTest, MaxNeverTakesPadding) {
  const float low = -std::numeric_limits<float>::infinity();
  const PoolOptions options{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .layout = GetParam()};
  const std::vector<Tensor> outputs =
      call(builtin("max_pool2d"), {image({low, -3, -2, -1}, 2, 2, GetParam())}, options);
  EXPECT_EQ(outputs[0].to_vector<float>(), std::vector<float>{-1});
  EXPECT_EQ(outputs[1].to_vector<uint8_t>(), std::vector<uint8_t>{8});
  const std::vector<Tensor> lowest =
      call(builtin("max_pool2d"), {image({low, low, low, low}, 2, 2, GetParam())}, options);
  EXPECT_EQ(lowest[1].to_vector<uint8_t>(), std::vector<uint8_t>{4});  // the first place inside the image
}

TEST_P(PoolTest, IndicesThatNameNoPixelMoveNoGradient) {
  const PoolOptions options{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .layout = GetParam()};
  const Shape shape = GetParam() == Layout::kNCHW ? Shape{1, 1, 2, 2} : Shape{1, 2, 2, 1};
  const Tensor dy = image({1, 2, 4, 8}, 2, 2, GetParam());
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    // Padding above, beyond the window, padding on the right, and one that is right: the second of its row.
    const Tensor indices = Tensor::from_values<uint8_t>({1, 255, 2, 4}, shape);
    const Tensor dx = max_pool2d_grad(dy.to(device), indices.to(device), {options, 3, 3});
    EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 4, 0, 0, 0, 8})) << to_string(device);
  }
  // Wide windows have wide indices, which can be negative.
  const PoolOptions wide{.kernel = {16, 16}, .stride = {16, 16}, .layout = GetParam()};
  const Tensor one = image({1}, 1, 1, GetParam());
  for (const int32_t index :
       {-1, 256, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    const Tensor indices = Tensor::from_values<int32_t>({index}, one.shape());
    const Tensor dx = max_pool2d_grad(one, indices, {wide, 16, 16});
    EXPECT_EQ(dx.to_vector<float>(), std::vector<float>(256, 0.0F)) << index;
  }
}

TEST_P(PoolTest, OverlappingWindowsAddTheirGradients) {
  const PoolOptions options{.kernel = {2, 2}, .stride = {1, 1}, .layout = GetParam()};
  const std::vector<Tensor> outputs =
      call(builtin("max_pool2d"), {image({0, 0, 0, 0, 9, 0, 0, 0, 0}, 3, 3, GetParam())}, options);
  const Tensor dx = max_pool2d_grad(image({1, 2, 4, 8}, 2, 2, GetParam()), outputs[1], {options, 3, 3});
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 15, 0, 0, 0, 0}));
}

TEST_P(PoolTest, LargeWindowsHaveWideIndices) {
  std::vector<float> values(256);
  values[255] = 1.0F;
  const PoolOptions options{.kernel = {16, 16}, .layout = GetParam()};
  const std::vector<Tensor> outputs =
      call(builtin("max_pool2d"), {image(values, 16, 16, GetParam())}, options);
  EXPECT_EQ(outputs[1].to_vector<int32_t>(), std::vector<int32_t>{255});
  const std::vector<Tensor> small = call(builtin("max_pool2d"), {image(values, 16, 16, GetParam())},
                                         PoolOptions{.kernel = {16, 15}, .layout = GetParam()});
  EXPECT_EQ(small[1].dtype(), DType::kUInt8);
}

TEST_P(PoolTest, CeilModeKeepsWindowsThatStartInTheImage) {
  const auto extent = [](int64_t in, const PoolOptions& options) {
    return max_pool2d(Tensor::zeros({1, 1, in, in}), options).size(2);
  };
  const PoolOptions options{.kernel = {2, 2}, .stride = {2, 2}, .ceil_mode = true};
  EXPECT_EQ(extent(5, options), 3);
  EXPECT_EQ(extent(4, options), 2);
  EXPECT_EQ(extent(2, {.kernel = {1, 1}, .stride = {3, 3}, .ceil_mode = true}),
            1);  // a second would start behind the image
  EXPECT_EQ(extent(5, {.kernel = {2, 2}, .stride = {2, 2}}), 2);
  // PyTorch divides an overhanging window by its part inside the padded image: 3 columns of 5, the last
  // window has 1.
  const Tensor y = avg_pool2d(image({1, 2, 3, 4, 5}, 1, 5, GetParam()),
                              {.kernel = {1, 2}, .stride = {1, 2}, .layout = GetParam(), .ceil_mode = true});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1.5F, 3.5F, 5.0F}));
}

TEST_P(PoolTest, AverageCountsPaddingOnlyIfAsked) {
  PoolOptions options{.kernel = {1, 3}, .stride = {1, 1}, .padding = {0, 1}, .layout = GetParam()};
  const Tensor x = image({3, 6, 9}, 1, 3, GetParam());
  EXPECT_EQ(avg_pool2d(x, options).to_vector<float>(), (std::vector<float>{3, 6, 5}));
  options.count_include_pad = false;
  EXPECT_EQ(avg_pool2d(x, options).to_vector<float>(), (std::vector<float>{4.5F, 6, 7.5F}));
}

TEST(Pool, SaysWhatIsWrong) {
  const Tensor x = Tensor::zeros({1, 1, 4, 4});
  EXPECT_EQ(error_of([&] {
              max_pool2d(x, {.kernel = {0, 2}});
            }),
            "[max_pool2d] expected a kernel of height >= 1 but got 0");
  EXPECT_EQ(error_of([&] {
              avg_pool2d(x, {.kernel = {2, 2}, .stride = {1, -1}});
            }),
            "[avg_pool2d] expected a stride of width >= 1, or 0 for the kernel's, but got -1");
  EXPECT_EQ(error_of([&] {
              max_pool2d(x, {.kernel = {3, 3}, .padding = {2, 0}});
            }),
            "[max_pool2d] expected padding of height in [0, kernel / 2 = 1] but got 2");
  EXPECT_EQ(error_of([&] {
              max_pool2d(x, {.kernel = {5, 5}});
            }),
            "[max_pool2d] expected height of at least 1 output but got extent 4 with kernel 5 and padding 0");
  EXPECT_EQ(error_of([&] {
              global_avg_pool2d(Tensor::zeros({1, 1, 0, 4}));
            }),
            "[global_avg_pool2d] expected height and width of at least 1 but got shape (1, 1, 0, 4)");
}

INSTANTIATE_TEST_SUITE_P(Layouts, PoolTest, testing::Values(Layout::kNCHW, Layout::kNHWC),
                         [](const auto& layout) { return std::string(to_string(layout.param)); });

}  // namespace
}  // namespace sinter::ops
