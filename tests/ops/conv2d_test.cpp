// conv2d beyond what its samples cover: exact messages, hand-computed values, both kernel families on shapes
// that either would take, and independence of the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>
#include <sinter/ops/pad/pad.h>

#include "common/error_message.h"
#include "common/threads.h"

namespace sinter::ops {
namespace {

using test::Threads;

using test::message_of;

Tensor random_tensor(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = 2.0F * generator.uniform() - 1.0F;
  return Tensor::from_values(values, shape);
}

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 1.0F);
  return Tensor::from_values(values, shape);
}

// ---- values by hand

TEST(Conv2d, SlidesTheFilterWithoutFlippingIt) {
  const Tensor x = counting({1, 1, 3, 3});
  const Tensor weight = Tensor::from_values<float>({1, 2, 3, 4}, {1, 1, 2, 2});
  const Tensor bias = Tensor::from_values<float>({0.5}, {1});
  const Tensor y = conv2d(x, weight, bias);
  EXPECT_EQ(y.shape(), (Shape{1, 1, 2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{37.5, 47.5, 67.5, 77.5}));
}

TEST(Conv2d, StrideAndPaddingDifferByAxis) {
  const Tensor x = counting({1, 1, 3, 4});
  const Tensor weight = Tensor::full({1, 1, 1, 3}, 1.0);
  const Tensor y = conv2d(x, weight, {}, {.stride = {2, 1}, .padding = {0, 1}});
  EXPECT_EQ(y.shape(), (Shape{1, 1, 2, 4}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 6, 9, 7, 19, 30, 33, 23}));
}

TEST(Conv2d, OneNumberStandsForBothAxes) {
  const Tensor x = counting({1, 1, 5, 5}), weight = counting({1, 1, 3, 3});
  EXPECT_EQ(conv2d(x, weight, {}, {.stride = 2, .padding = 1}).to_vector<float>(),
            conv2d(x, weight, {}, {.stride = {2, 2}, .padding = {1, 1}}).to_vector<float>());
  EXPECT_EQ(conv2d(x, weight, {}, {.dilation = 2}).to_vector<float>(),
            conv2d(x, weight, {}, {.dilation = {2, 2}}).to_vector<float>());
}

TEST(Conv2d, ThePaddingOfEachSideIsItsOwn) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const bool is_last = layout == Layout::kNHWC;
    const Tensor x = counting(is_last ? Shape{2, 3, 4, 2} : Shape{2, 2, 3, 4}),
                 weight = counting(is_last ? Shape{3, 2, 3, 2} : Shape{3, 2, 2, 3});
    const std::array<int64_t, 2> none{0, 0}, rows{1, 2}, columns{3, 0};
    const Tensor padded = is_last ? pad(x, {none, rows, columns, none}) : pad(x, {none, none, rows, columns});
    const Tensor y = conv2d(x, weight, {}, {.stride = 2, .padding = {1, 2, 3, 0}, .layout = layout});
    const Tensor want = conv2d(padded, weight, {}, {.stride = 2, .layout = layout});
    EXPECT_EQ(y.shape(), want.shape());
    EXPECT_EQ(y.to_vector<float>(), want.to_vector<float>());
  }
}

TEST(Conv2d, ConvertsTheImagesOfALayerThatStaysFloat32) {
  const Tensor x = cast(counting({1, 1, 3, 3}), DType::kFloat16), weight = Tensor::full({1, 1, 2, 2}, 0.25);
  const Tensor y = conv2d(x, weight, {}, {.keep_float32 = true});
  EXPECT_EQ(y.dtype(), DType::kFloat32);
  EXPECT_EQ(y.to_vector<float>(), conv2d(cast(x, DType::kFloat32), weight).to_vector<float>());
}

TEST(Conv2d, DilationSpreadsTheTaps) {
  const Tensor x = counting({1, 1, 1, 5});
  const Tensor weight = Tensor::from_values<float>({1, 10}, {1, 1, 1, 2});
  const Tensor y = conv2d(x, weight, {}, {.dilation = {1, 3}});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{41, 52}));
}

TEST(Conv2d, GroupsKeepTheirChannelsApart) {
  const Tensor x = Tensor::from_values<float>({1, 2, 3, 4}, {1, 4, 1, 1});
  const Tensor weight = Tensor::from_values<float>({1, 1, 10, 10}, {2, 2, 1, 1});
  EXPECT_EQ(conv2d(x, weight, {}, {.groups = 2}).to_vector<float>(), (std::vector<float>{3, 70}));
  const Tensor depthwise = Tensor::from_values<float>({1, 10, 100, 1000}, {4, 1, 1, 1});
  EXPECT_EQ(conv2d(x, depthwise, {}, {.groups = 4}).to_vector<float>(),
            (std::vector<float>{1, 20, 300, 4000}));
}

TEST(Conv2d, EmptyBatch) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    for (const int64_t channels : {2, 32}) {
      const Conv2dAttributes options{.padding = {1, 1}, .layout = layout};
      const Tensor x = Tensor::empty(image_shape(layout, 0, 3, 5, 6));
      const Tensor weight = Tensor::full(image_shape(layout, channels, 3, 3, 3), 1.0);
      const Tensor y = conv2d(x, weight, {}, options);
      EXPECT_EQ(y.shape(), image_shape(layout, 0, channels, 5, 6));
      EXPECT_EQ(vjp::conv2d_input(y, weight, {5, 6}, options).shape(), x.shape());
      const Tensor dweight = vjp::conv2d_weight(y, x, {3, 3}, options);
      EXPECT_EQ(dweight.to_vector<float>(), std::vector<float>(static_cast<size_t>(weight.numel()), 0.0F));
    }
  }
}

TEST(Conv2d, NothingReadsBeyondTheImage) {
  // Values that padding or a neighbouring image might pick up by mistake would turn the result into NaN.
  const Conv2dAttributes options{.padding = {1, 1}, .layout = Layout::kNHWC};
  std::vector<float> values(2 * 4 * 4 * 3, 1.0F);
  std::fill(values.begin() + 4 * 4 * 3, values.end(), std::nanf(""));
  const Tensor x = Tensor::from_values(values, {2, 4, 4, 3});
  const Tensor weight = Tensor::full({16, 3, 3, 3}, 1.0);
  const std::vector<float> y = conv2d(x, weight, {}, options).to_vector<float>();
  const size_t image = y.size() / 2;
  EXPECT_EQ(std::count_if(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(image),
                          [](float v) { return v != v; }),
            0);
  EXPECT_EQ(y[0], 12.0F);
  EXPECT_EQ(y[(4 + 1) * 16], 27.0F);
}

// ---- the kernel families against each other

/// The result of an op on the kernel of that name.
std::vector<float> on_kernel(const char* op, const char* kernel, const std::vector<Tensor>& inputs,
                             const Attributes& attributes) {
  const ForcedKernel forced(op, kernel);
  const Tensor result = call(builtin(op), inputs, attributes).front();
  EXPECT_EQ(forced.runs(), 1) << op << " did not run on " << kernel;
  return cast(result, DType::kFloat32).to_vector<float>();
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

struct Case {
  int64_t batch, in, out, height, width, kernel;
  Conv2dAttributes options;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> made = {
      {2, 3, 16, 9, 33, 3, {.padding = {1, 1}}},
      {3, 16, 16, 8, 8, 3, {.padding = {1, 1}}},
      {2, 40, 48, 7, 7, 3, {.stride = {2, 2}, .padding = {1, 1}}},
      {1, 64, 64, 28, 29, 3, {.stride = {1, 2}, .padding = {1, 0}}},
      {2, 32, 70, 10, 10, 1, {.stride = {2, 2}}},
      {2, 32, 64, 6, 5, 1, {}},
      {1, 16, 20, 15, 18, 3, {.stride = {3, 2}, .padding = {2, 4}, .dilation = {2, 3}}},
      {2, 48, 96, 5, 6, 3, {.padding = {1, 1}, .groups = 3}},
      {1, 130, 33, 4, 4, 5, {.padding = {2, 2}}},
      {20, 8, 16, 12, 12, 3, {.padding = {1, 1}}},
  };
  return made;
}

/// The three ops of a case on two kernels, in both layouts. `tolerance`: of values; filters are sums of more.
void compare_kernels(const Case& c, const char* first, const char* second, DType dtype, float tolerance) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    Conv2dAttributes options = c.options;
    options.layout = layout;
    SCOPED_TRACE(fmt::format("{} {} in {} out {} {}x{} kernel {}", to_string(dtype),
                             sinter::to_string(options), c.in, c.out, c.height, c.width, c.kernel));
    const Tensor x = cast(random_tensor(image_shape(layout, c.batch, c.in, c.height, c.width), 1), dtype);
    const Tensor weight =
        cast(random_tensor(image_shape(layout, c.out, c.in / options.groups, c.kernel, c.kernel), 2), dtype);
    const Tensor bias = cast(random_tensor({c.out}, 3), dtype);
    const Conv2dGeometry geometry = conv2d_geometry("test", x.shape(), weight.shape(), options);
    const Tensor dy = cast(random_tensor(geometry.y_shape(), 4), dtype);
    const Conv2dGradInputAttributes input_attributes{options, {c.height, c.width}};
    const Conv2dGradWeightAttributes weight_attributes{options, {c.kernel, c.kernel}};
    std::vector<std::vector<float>> results;
    for (const char* kernel : {first, second}) {
      results.push_back(on_kernel("conv2d", kernel, {x, weight, bias}, options));
      results.push_back(on_kernel("conv2d_grad_input", kernel, {dy, weight}, input_attributes));
      results.push_back(on_kernel("conv2d_grad_weight", kernel, {x, dy}, weight_attributes));
    }
    expect_close(results[0], results[3], tolerance);
    expect_close(results[1], results[4], tolerance);
    expect_close(results[2], results[5], 5.0F * tolerance);
  }
}

TEST(Conv2dKernels, DirectAndIm2colAgree) {
  for (const Case& c : cases()) compare_kernels(c, "direct", "im2col", DType::kFloat32, 2e-4F);
}

/// Odd and even images, from one tile to several bands, with and without whole vectors of channels.
const std::vector<Case>& winograd_cases() {
  static const std::vector<Case> made = {
      {9, 16, 16, 8, 8, 3, {.padding = {1, 1}}},
      {2, 32, 48, 7, 9, 3, {.padding = {1, 1}}},
      {3, 16, 32, 5, 6, 3, {}},
      {1, 20, 37, 11, 4, 3, {.padding = {2, 0}}},
      {2, 1, 3, 3, 3, 3, {}},
      {1, 3, 1, 1, 2, 3, {.padding = {1, 2}}},
      {40, 33, 16, 2, 2, 3, {.padding = {1, 1}}},
      {1, 64, 64, 71, 70, 3, {.padding = {1, 1}}},
      {30, 17, 64, 9, 13, 3, {.padding = {1, 1}}},
  };
  return made;
}

TEST(Conv2dKernels, WinogradAndDirectAgree) {
  for (const Case& c : winograd_cases()) {
    compare_kernels(c, "winograd", "direct", DType::kFloat32, 4e-4F);
    compare_kernels(c, "winograd", "direct", DType::kFloat64, 1e-5F);
    compare_kernels(c, "winograd", "direct", DType::kBFloat16, 0.5F);
  }
}

TEST(Conv2dKernels, WinogradDoesNotDependOnTheThreads) {
  for (const Case& c : winograd_cases()) {
    const Tensor x = random_tensor({c.batch, c.in, c.height, c.width}, 1);
    const Tensor weight = random_tensor({c.out, c.in, 3, 3}, 2);
    const Conv2dGeometry geometry = conv2d_geometry("test", x.shape(), weight.shape(), c.options);
    const Tensor dy = random_tensor(geometry.y_shape(), 3);
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 5}) {
      const Threads guard(threads);
      const std::vector<std::vector<float>> results = {
          on_kernel("conv2d", "winograd", {x, weight, Tensor()}, c.options),
          on_kernel("conv2d_grad_input", "winograd", {dy, weight},
                    Conv2dGradInputAttributes{c.options, {c.height, c.width}}),
          on_kernel("conv2d_grad_weight", "winograd", {x, dy},
                    Conv2dGradWeightAttributes{c.options, {3, 3}})};
      if (first.empty()) first = results;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(std::memcmp(results[i].data(), first[i].data(), first[i].size() * sizeof(float)), 0)
            << "result " << i << " with " << threads << " threads";
      }
    }
  }
}

TEST(Conv2dKernels, WinogradReadsNoOtherImage) {
  const Conv2dAttributes options{.padding = {1, 1}, .layout = Layout::kNHWC};
  std::vector<float> values(2 * 5 * 5 * 16, 1.0F);
  std::fill(values.begin() + 5 * 5 * 16, values.end(), std::nanf(""));
  const Tensor x = Tensor::from_values(values, {2, 5, 5, 16});
  const std::vector<float> y =
      on_kernel("conv2d", "winograd", {x, Tensor::full({16, 3, 3, 16}, 1.0), Tensor()}, options);
  for (size_t i = 0; i < y.size() / 2; ++i) {
    const size_t row = i / 16 / 5, column = i / 16 % 5;
    const float rows = row == 0 || row == 4 ? 2 : 3, columns = column == 0 || column == 4 ? 2 : 3;
    EXPECT_EQ(y[i], 16.0F * rows * columns) << "element " << i;
  }
}

TEST(Conv2dKernels, ResultsDoNotDependOnTheThreads) {
  for (const Case& c : cases()) {
    const Tensor x = random_tensor({c.batch, c.in, c.height, c.width}, 1);
    const Tensor weight = random_tensor({c.out, c.in / c.options.groups, c.kernel, c.kernel}, 2);
    const Tensor dy =
        random_tensor(conv2d_geometry("test", x.shape(), weight.shape(), c.options).y_shape(), 3);
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 5}) {
      const Threads guard(threads);
      const std::vector<std::vector<float>> results = {
          conv2d(x, weight, {}, c.options).to_vector<float>(),
          vjp::conv2d_input(dy, weight, {c.height, c.width}, c.options).to_vector<float>(),
          vjp::conv2d_weight(dy, x, {c.kernel, c.kernel}, c.options).to_vector<float>()};
      if (first.empty()) first = results;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(std::memcmp(results[i].data(), first[i].data(), first[i].size() * sizeof(float)), 0)
            << "result " << i << " with " << threads << " threads";
      }
    }
  }
}

// ---- messages

TEST(Conv2dErrors, NameWhatWasExpected) {
  const Tensor x = Tensor::zeros({2, 4, 5, 5});
  const Tensor weight = Tensor::zeros({6, 4, 3, 3});
  EXPECT_EQ(message_of([&] {
              conv2d(Tensor::zeros({4, 5, 5}), weight);
            }),
            "[conv2d] expected x of rank 4 but got shape (4, 5, 5)");
  EXPECT_EQ(message_of([&] {
              conv2d(x, Tensor::zeros({6, 4, 3}));
            }),
            "[conv2d] expected weight of rank 4 but got shape (6, 4, 3)");
  EXPECT_EQ(message_of([&] {
              conv2d(x, Tensor::zeros({6, 4, 3, 3}, DType::kFloat64));
            }),
            "[conv2d] expected weight and x of one dtype but got float64 and float32");
  EXPECT_EQ(message_of([&] {
              conv2d(Tensor::zeros({2, 4, 5, 5}, DType::kInt64), weight);
            }),
            "[conv2d] expected x of a floating-point dtype but got int64");
  EXPECT_EQ(message_of([&] {
              conv2d(Tensor::zeros({2, 5, 5, 5}), weight);
            }),
            "[conv2d] expected an input of 4 channels (4 for each of 1 groups) but got shape (2, 5, 5, 5) in "
            "layout NCHW");
  EXPECT_EQ(message_of([&] {
              conv2d(x, Tensor::zeros({6, 2, 3, 3}), {}, {.groups = 4});
            }),
            "[conv2d] expected output channels that 4 groups divide but got 6");
  EXPECT_EQ(message_of([&] {
              conv2d(x, Tensor::zeros({0, 4, 3, 3}));
            }),
            "[conv2d] expected a weight without empty axes but got shape (0, 4, 3, 3)");
  EXPECT_EQ(message_of([&] { conv2d(x, weight, Tensor::zeros({5})); }),
            "[conv2d] expected bias of shape (6,) but got (5,)");
  EXPECT_EQ(message_of([&] {
              conv2d(x, weight, {}, {.dilation = {1, 3}});
            }),
            "[conv2d] the filter is larger than the padded input: width 5 with padding 0, kernel 3 with "
            "dilation 3");
  EXPECT_EQ(message_of([&] {
              conv2d(x, weight, {}, {.stride = {0, 1}});
            }),
            "[conv2d] expected a stride of at least 1 but got (0, 1)");
  EXPECT_EQ(message_of([&] {
              conv2d(x, weight, {}, {.padding = {0, -1}});
            }),
            "[conv2d] expected a padding of at least 0 but got (0, -1)");
  EXPECT_EQ(message_of([&] {
              conv2d(x, weight, {}, {.padding = {0, 1, 0, -1}});
            }),
            "[conv2d] expected a padding of at least 0 but got (0, -1)");
  EXPECT_EQ(message_of([&] { conv2d(x, weight, Tensor::zeros({6}), {.bias = false}); }),
            "[conv2d] expected no bias, as the options say, but got one of shape (6,)");
  EXPECT_EQ(message_of([&] { conv2d(x, weight, {}, {.groups = 0}); }),
            "[conv2d] expected at least 1 group but got 0");
}

TEST(Conv2dErrors, GradientsCheckTheirShapes) {
  const Tensor weight = Tensor::zeros({6, 4, 3, 3});
  EXPECT_EQ(message_of([&] {
              vjp::conv2d_input(Tensor::zeros({2, 6, 4, 3}), weight, {5, 5});
            }),
            "[conv2d_grad_input] expected dy of shape (2, 6, 3, 3) but got (2, 6, 4, 3)");
  EXPECT_EQ(message_of([&] {
              vjp::conv2d_input(Tensor::zeros({2, 6, 3, 3}), weight, {-1, 5});
            }),
            "[conv2d_grad_input] expected an input size of at least 0 but got (-1, 5)");
  EXPECT_EQ(message_of([&] {
              vjp::conv2d_input(Tensor::zeros({2, 6, 3, 3}), weight, {5, 5}, {.padding = {0, 1, 0, 0}});
            }),
            "[conv2d_grad_input] expected the same padding on both sides of an axis but got top 0, bottom 1, "
            "left 0, right 0");
  EXPECT_EQ(message_of([&] {
              vjp::conv2d_weight(Tensor::zeros({3, 6, 3, 3}), Tensor::zeros({2, 4, 5, 5}), {3, 3});
            }),
            "[conv2d_grad_weight] expected dy of shape (2, 6, 3, 3) but got (3, 6, 3, 3)");
  EXPECT_EQ(message_of([&] {
              vjp::conv2d_weight(Tensor::zeros({2, 6, 3, 3}), Tensor::zeros({2, 4, 5, 5}), {0, 3});
            }),
            "[conv2d_grad_weight] expected a kernel size of at least 1 but got (0, 3)");
}

}  // namespace
}  // namespace sinter::ops
