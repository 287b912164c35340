// Adaptive pooling beyond its samples: its windows, the sizes that other kernels take over, errors.
#include <gtest/gtest.h>

#include <sinter/autograd/gradcheck.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/adaptive_pool/adaptive_pool_math.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

TEST(AdaptivePool, TakesPyTorchsWindows) {
  const Tensor x = Tensor::from_values<float>({1, 2, 3, 4, 5}, Shape{1, 1, 1, 5});
  // [0, 2), [1, 4) and [3, 5); and each pixel twice but for the one in the middle.
  EXPECT_EQ(adaptive_avg_pool2d(x, {1, 3}).to_vector<float>(), (std::vector<float>{1.5F, 3, 4.5F}));
  EXPECT_EQ(
      adaptive_avg_pool2d(x, {2, 9}).to_vector<float>(),
      (std::vector<float>{1, 1.5F, 2, 2.5F, 3, 3.5F, 4, 4.5F, 5, 1, 1.5F, 2, 2.5F, 3, 3.5F, 4, 4.5F, 5}));
}

TEST(AdaptivePool, FindsTheWindowsOfAPixel) {
  for (int64_t pixels = 1; pixels <= 24; ++pixels) {
    for (int64_t windows = 1; windows <= 24; ++windows) {
      const AdaptiveAxis axis{pixels, windows};
      for (int64_t i = 0; i < pixels; ++i) {
        const auto found = axis.windows_of(i);
        for (int64_t o = 0; o < windows; ++o) {
          const auto inside = axis.pixels_of(o);
          ASSERT_EQ(i >= inside.begin && i < inside.end, o >= found.begin && o < found.end)
              << "pixel " << i << " of " << pixels << ", window " << o << " of " << windows;
        }
      }
    }
  }
}

TEST(AdaptivePool, AgreesWithTheKernelsThatTakeSomeSizes) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    for (const auto& [size, name] : {std::pair{std::array<int64_t, 2>{1, 1}, "the whole image"},
                                     {{3, 2}, "divisors"},
                                     {{6, 8}, "every pixel"},
                                     {{4, 3}, "none"}}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(layout), name));
      SampleMaker maker(31, DType::kFloat64);
      const Tensor x = maker.tensor(layout == Layout::kNCHW ? Shape{2, 3, 6, 8} : Shape{2, 6, 8, 3});
      const Tensor direct =
          call_single(builtin("adaptive_avg_pool2d"), {x}, AdaptivePoolAttributes{size, layout});
      const Tensor y = adaptive_avg_pool2d(x, {size[0], size[1]}, {.layout = layout});
      ASSERT_EQ(y.shape(), direct.shape());
      for (int64_t i = 0; i < y.numel(); ++i)
        EXPECT_NEAR(y.data<double>()[i], direct.data<double>()[i], 1e-14);
      x.set_requires_grad(true);
      const auto pool = [&](const std::vector<Tensor>& inputs) {
        return std::vector<Tensor>{adaptive_avg_pool2d(inputs[0], {size[0], size[1]}, {.layout = layout})};
      };
      const GradcheckResult result = gradcheck(pool, {x});
      EXPECT_TRUE(result.passed) << result.message;
    }
  }
}

TEST(AdaptivePool, SaysWhatIsWrong) {
  EXPECT_EQ(message_of([&] {
              adaptive_avg_pool2d(Tensor::zeros({1, 1, 0, 4}), {1, 1});
            }),
            "[adaptive_avg_pool2d] expected height and width of at least 1 but got shape (1, 1, 0, 4)");
  EXPECT_EQ(message_of([&] {
              adaptive_avg_pool2d(Tensor::zeros({1, 1, 4, 4}), {2, 0});
            }),
            "[adaptive_avg_pool2d] expected a size in [1, 2^30] but got 2 x 0");
  EXPECT_EQ(message_of([&] {
              adaptive_avg_pool2d(Tensor::zeros({3, 4, 4}), {2, 2});
            }),
            "[adaptive_avg_pool2d] expected x of rank 4 but got shape (3, 4, 4)");
}

}  // namespace
}  // namespace sinter::ops
