// Which convolutions are kept off cuDNN: the rule against a search through every output and tap.
#include <string>

#include <gtest/gtest.h>

#include <sinter/core/cuda/cudnn/cudnn_conv_limits.h>

namespace sinter::cuda {
namespace {

/// A problem of square stride, padding and dilation.
ConvProblem problem(std::array<int64_t, 4> x, std::array<int64_t, 4> weight, int64_t stride, int64_t padding,
                    int64_t dilation = 1) {
  ConvProblem made{.dtype = DType::kFloat16,
                   .x = x,
                   .weight = weight,
                   .stride = {stride, stride},
                   .padding = {padding, padding},
                   .dilation = {dilation, dilation}};
  made.y = {x[0], weight[0], 0, 0};
  for (const size_t axis : {size_t{2}, size_t{3}}) {
    made.y[axis] = (x[axis] + 2 * padding - dilation * (weight[axis] - 1) - 1) / stride + 1;
  }
  return made;
}

std::string text(const ConvProblem& p) {
  return fmt::format("x {},{} weight {},{} stride {},{} padding {},{} dilation {},{}", p.x[2], p.x[3],
                     p.weight[2], p.weight[3], p.stride[0], p.stride[1], p.padding[0], p.padding[1],
                     p.dilation[0], p.dilation[1]);
}

TEST(CudnnConvLimits, NetworksRunOnCudnn) {
  for (const ConvPass pass : {ConvPass::kForward, ConvPass::kGradInput, ConvPass::kGradWeight}) {
    for (ConvProblem p : {
             problem({256, 3, 224, 224}, {64, 3, 7, 7}, 2, 3),    // ResNet's first layer
             problem({256, 64, 56, 56}, {64, 64, 3, 3}, 1, 1),    //
             problem({256, 64, 56, 56}, {128, 64, 3, 3}, 2, 1),   //
             problem({256, 64, 56, 56}, {128, 64, 1, 1}, 2, 0),   // its shortcut: stride beyond the filter
             problem({8, 3, 32, 32}, {16, 3, 2, 2}, 2, 0),        // patches
             problem({8, 3, 224, 224}, {768, 3, 16, 16}, 16, 0),  //
             problem({2, 256, 33, 33}, {256, 256, 3, 3}, 1, 18, 18),
             problem({8, 512, 1, 1}, {1000, 512, 1, 1}, 1, 0),
             problem({8, 16, 4, 4}, {16, 16, 4, 4}, 1, 0),
             problem({8, 16, 1, 1}, {16, 16, 2, 2}, 1, 1),
         }) {
      p.pass = pass;
      EXPECT_TRUE(is_safe_for_cudnn(p)) << text(p);
    }
  }
}

TEST(CudnnConvLimits, WhatLiesInThePaddingDoesNot) {
  ConvProblem seen = problem({1, 13, 14, 13}, {7, 13, 1, 3}, 3, 3);
  seen.stride = {3, 4};
  seen.y = {1, 7, 7, 5};
  EXPECT_FALSE(is_safe_for_cudnn(seen));
  seen.dilation = {3, 1};
  EXPECT_FALSE(is_safe_for_cudnn(seen));
  EXPECT_FALSE(is_safe_for_cudnn(problem({1, 8, 9, 9}, {8, 8, 1, 1}, 1, 1)));  // outputs of padding alone
  EXPECT_FALSE(is_safe_for_cudnn(problem({1, 8, 9, 9}, {8, 8, 3, 3}, 1, 12, 12)));  // taps beyond the image
  EXPECT_FALSE(is_safe_for_cudnn(problem({1, 8, 1, 1}, {8, 8, 2, 2}, 1, 1, 2)));    // the image between taps
  EXPECT_FALSE(is_safe_for_cudnn(problem({0, 8, 9, 9}, {8, 8, 3, 3}, 1, 1)));
  ConvProblem wrong = problem({1, 8, 9, 9}, {8, 8, 3, 3}, 1, 1);
  wrong.y[3] += 1;
  EXPECT_FALSE(is_safe_for_cudnn(wrong));
}

/// The rule by search along one axis.
bool all_meet(int64_t input, int64_t kernel, int64_t output, int64_t stride, int64_t padding,
              int64_t dilation) {
  const auto reads = [&](int64_t out, int64_t tap) {
    const int64_t at = out * stride - padding + tap * dilation;
    return at >= 0 && at < input;
  };
  for (int64_t out = 0; out < output; ++out) {
    bool any = false;
    for (int64_t tap = 0; tap < kernel; ++tap) any = any || reads(out, tap);
    if (!any) return false;
  }
  for (int64_t tap = 0; tap < kernel; ++tap) {
    bool any = false;
    for (int64_t out = 0; out < output; ++out) any = any || reads(out, tap);
    if (!any) return false;
  }
  return true;
}

TEST(CudnnConvLimits, TheRuleIsExact) {
  int64_t safe = 0, kept_off = 0;
  for (int64_t input = 1; input <= 7; ++input) {
    for (int64_t kernel = 1; kernel <= 4; ++kernel) {
      for (int64_t stride = 1; stride <= 5; ++stride) {
        for (int64_t padding = 0; padding <= 5; ++padding) {
          for (int64_t dilation = 1; dilation <= 4; ++dilation) {
            const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
            if (room < 0) continue;
            ConvProblem p = problem({1, 4, 9, input}, {4, 4, 1, kernel}, 1, 0);  // the rows are ordinary
            p.stride[1] = stride;
            p.padding[1] = padding;
            p.dilation[1] = dilation;
            p.y[3] = room / stride + 1;
            const bool expected = all_meet(input, kernel, p.y[3], stride, padding, dilation);
            ASSERT_EQ(is_safe_for_cudnn(p), expected) << text(p);
            ++(expected ? safe : kept_off);
          }
        }
      }
    }
  }
  EXPECT_GT(safe, 100);
  EXPECT_GT(kept_off, 100);
}

}  // namespace
}  // namespace sinter::cuda
