// That a staged convolution is the convolution, in integers and without a device.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/cuda/cudnn/conv_staging.h>
#include <sinter/core/runtime/random.h>

#include "core/cuda/pixel_fold_support.h"

namespace sinter::cuda {
namespace {

using Values = std::vector<int64_t>;

int64_t integer(Generator& generator, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(generator.below(static_cast<uint64_t>(high - low + 1)));
}

Values random_values(Generator& generator, int64_t count) {
  Values values(static_cast<size_t>(count));
  for (int64_t& value : values) value = integer(generator, -9, 9);
  return values;
}

/// Element (n, c, h, w) of a channels-last array of `extents` (n, c, h, w).
size_t element(const std::array<int64_t, 4>& extents, int64_t n, int64_t c, int64_t h, int64_t w) {
  return static_cast<size_t>(((n * extents[2] + h) * extents[3] + w) * extents[1] + c);
}

/// Calls visit(x element, weight element, y element) for all products that the convolution sums.
template <class Visit>
void for_each_product(const ConvProblem& p, Visit visit) {
  for (int64_t n = 0; n < p.y[0]; ++n) {
    for (int64_t o = 0; o < p.y[1]; ++o) {
      for (int64_t i = 0; i < p.y[2] * p.y[3]; ++i) {
        const int64_t row = i / p.y[3], column = i % p.y[3];
        for (int64_t tap = 0; tap < p.weight[2] * p.weight[3]; ++tap) {
          const int64_t u = tap / p.weight[3], v = tap % p.weight[3];
          const int64_t h = row * p.stride[0] - p.padding[0] + u * p.dilation[0];
          const int64_t w = column * p.stride[1] - p.padding[1] + v * p.dilation[1];
          if (h < 0 || h >= p.x[2] || w < 0 || w >= p.x[3]) continue;
          for (int64_t c = 0; c < p.x[1]; ++c) {
            visit(element(p.x, n, c, h, w), element(p.weight, o, c, u, v), element(p.y, n, o, row, column));
          }
        }
      }
    }
  }
}

Values folded(const PixelFold& fold, const Values& plain) {
  Values staged(static_cast<size_t>(fold.staged_count()));
  for_each_element(fold, [&](size_t from, size_t to) { staged[to] = plain[from]; });
  return staged;
}

Values unfolded(const PixelFold& fold, const Values& staged) {
  Values plain(static_cast<size_t>(fold.plain_count()));
  for_each_element(fold, [&](size_t to, size_t from) { plain[to] = staged[from]; });
  return plain;
}

ConvProblem random_problem(Generator& generator) {
  ConvProblem p{.dtype = DType::kFloat16, .layout = Layout::kNHWC};
  const int64_t channels = integer(generator, 1, 9), outs = integer(generator, 1, 3);
  p.x = {integer(generator, 1, 2), channels, 0, 0};
  p.weight = {outs, channels, 0, 0};
  p.y = {p.x[0], outs, 0, 0};
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    p.stride[axis] = integer(generator, 1, 3);
    p.dilation[axis] = integer(generator, 0, 4) == 0 ? 2 : 1;
    const int64_t kernel = integer(generator, 1, 7), reach = p.dilation[axis] * (kernel - 1);
    p.padding[axis] = integer(generator, 0, 4);
    const int64_t least = std::max<int64_t>(1, reach + 1 - 2 * p.padding[axis]);
    p.weight[2 + axis] = kernel;
    p.x[2 + axis] = integer(generator, least, least + 8);
    p.y[2 + axis] = (p.x[2 + axis] + 2 * p.padding[axis] - reach - 1) / p.stride[axis] + 1;
  }
  return p;
}

int64_t count_of(const std::array<int64_t, 4>& extents) {
  return extents[0] * extents[1] * extents[2] * extents[3];
}

/// The result of `pass`, where `x`, `weight` and `y` are what the pass reads; the third is ignored.
Values convolve(const ConvProblem& p, const Values& x, const Values& weight, const Values& y) {
  const auto& extents = p.pass == ConvPass::kForward ? p.y : p.pass == ConvPass::kGradInput ? p.x : p.weight;
  Values result(static_cast<size_t>(count_of(extents)));
  for_each_product(p, [&](size_t in, size_t filter, size_t out) {
    switch (p.pass) {
      case ConvPass::kForward:
        result[out] += x[in] * weight[filter];
        break;
      case ConvPass::kGradInput:
        result[in] += y[out] * weight[filter];
        break;
      case ConvPass::kGradWeight:
        result[filter] += x[in] * y[out];
        break;
    }
  });
  return result;
}

TEST(ConvStaging, StagedConvolutionsAreTheSame) {
  using enum AxisStaging;
  Generator generator(11);
  int blocks = 0, windows = 0;
  for (int i = 0; i < 500; ++i) {
    ConvProblem p = random_problem(generator);
    const Values x = random_values(generator, count_of(p.x)), y = random_values(generator, count_of(p.y)),
                 weight = random_values(generator, count_of(p.weight));
    for (const ConvPass pass : {ConvPass::kForward, ConvPass::kGradInput, ConvPass::kGradWeight}) {
      p.pass = pass;
      const Values expected = convolve(p, x, weight, y);
      for (const ConvStaging& staging : conv_stagings(p, true)) {
        SCOPED_TRACE(std::to_string(i) + ": " + to_string(staging));
        blocks += std::count(staging.axes.begin(), staging.axes.end(), kBlocks) > 0 ? 1 : 0;
        windows += std::count(staging.axes.begin(), staging.axes.end(), kWindows) > 0 ? 1 : 0;
        const ConvProblem s = staged_problem(p, staging);
        const PixelFold x_fold = fold_of_x(p, staging), weight_fold = fold_of_weight(p, staging);
        ASSERT_EQ(s.y, p.y);
        ASSERT_EQ(x_fold.staged_count(), count_of(s.x));
        ASSERT_EQ(weight_fold.staged_count(), count_of(s.weight));
        const Values result = convolve(s, folded(x_fold, x), folded(weight_fold, weight), y);
        ASSERT_EQ(pass == ConvPass::kForward     ? result
                  : pass == ConvPass::kGradInput ? unfolded(x_fold, result)
                                                 : unfolded(weight_fold, result),
                  expected);
      }
    }
  }
  EXPECT_GT(blocks, 50);
  EXPECT_GT(windows, 50);
}

ConvProblem first_layer(int64_t channels) {
  return {.dtype = DType::kFloat16,
          .layout = Layout::kNHWC,
          .x = {2, channels, 224, 224},
          .weight = {64, channels, 7, 7},
          .y = {2, 64, 112, 112},
          .stride = {2, 2},
          .padding = {3, 3}};
}

std::vector<std::string> names_of(const ConvProblem& problem) {
  std::vector<std::string> names;
  for (const ConvStaging& staging : conv_stagings(problem, true)) names.push_back(to_string(staging));
  return names;
}

TEST(ConvStaging, TheFirstLayerOfResNet) {
  using Names = std::vector<std::string>;
  ConvProblem problem = first_layer(3);
  EXPECT_EQ(names_of(problem),
            (Names{"plain,plain,4", "plain,plain,8", "blocks,blocks,16", "blocks,windows,48"}));
  ConvProblem staged = staged_problem(problem, conv_stagings(problem, true)[2]);
  EXPECT_EQ(staged.x, (std::array<int64_t, 4>{2, 16, 115, 115}));
  EXPECT_EQ(staged.weight, (std::array<int64_t, 4>{64, 16, 4, 4}));
  EXPECT_EQ(staged.stride, (std::array<int64_t, 2>{1, 1}));
  EXPECT_EQ(staged.padding, (std::array<int64_t, 2>{0, 0}));
  staged = staged_problem(problem, conv_stagings(problem, true)[3]);
  EXPECT_EQ(staged.x, (std::array<int64_t, 4>{2, 48, 115, 112}));
  EXPECT_EQ(staged.weight, (std::array<int64_t, 4>{64, 48, 4, 1}));

  problem.pass = ConvPass::kGradInput;
  EXPECT_EQ(names_of(problem), (Names{"plain,plain,4", "plain,plain,8", "blocks,blocks,16"}));

  problem = first_layer(3);
  problem.sums = true;
  EXPECT_EQ(names_of(problem), (Names{"plain,plain,8", "blocks,blocks,16", "blocks,windows,48"}));
}

TEST(ConvStaging, SmallImages) {
  ConvProblem problem = first_layer(3);
  problem.weight = {64, 3, 3, 3};
  problem.x = {2, 3, 32, 32};
  problem.y = {2, 64, 32, 32};
  problem.stride = problem.padding = {1, 1};
  EXPECT_EQ(names_of(problem), (std::vector<std::string>{"plain,plain,4", "plain,plain,8", "plain,windows,16",
                                                         "windows,windows,32"}));
  const ConvProblem staged = staged_problem(problem, conv_stagings(problem, true)[2]);
  EXPECT_EQ(staged.x, (std::array<int64_t, 4>{2, 16, 32, 32}));
  EXPECT_EQ(staged.weight, (std::array<int64_t, 4>{64, 16, 3, 1}));
  EXPECT_EQ(staged.padding, (std::array<int64_t, 2>{1, 0}));
}

TEST(ConvStaging, OnlyWhereTensorCoresMissChannels) {
  EXPECT_TRUE(conv_stagings(first_layer(3), false).empty());
  for (const int64_t channels : {8, 33, 64}) {
    EXPECT_TRUE(conv_stagings(first_layer(channels), true).empty()) << channels;
  }
  ConvProblem planar = first_layer(3);
  planar.layout = Layout::kNCHW;
  EXPECT_TRUE(conv_stagings(planar, true).empty());
  ConvProblem grouped = first_layer(6);
  grouped.weight[1] = 3;
  EXPECT_TRUE(conv_stagings(grouped, true).empty());

  ConvProblem dilated = first_layer(3);
  dilated.dilation = {2, 2};
  EXPECT_EQ(names_of(dilated), (std::vector<std::string>{"plain,plain,4", "plain,plain,8"}));
  ConvProblem skipping = first_layer(3);
  skipping.weight[2] = 1;
  EXPECT_EQ(names_of(skipping), (std::vector<std::string>{"plain,plain,4", "plain,plain,8"}));
  ConvProblem tf32 = first_layer(3);
  tf32.dtype = DType::kFloat32;
  EXPECT_EQ(names_of(tf32),
            (std::vector<std::string>{"plain,plain,4", "blocks,blocks,12", "blocks,windows,44"}));
}

}  // namespace
}  // namespace sinter::cuda
