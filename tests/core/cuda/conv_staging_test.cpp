// That a staged convolution is the convolution, in integers and without a device.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/cuda/conv_staging.h>
#include <sinter/core/runtime/random.h>

#include "core/cuda/block_fold_support.h"

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

Values folded(const BlockFold& fold, const Values& plain) {
  Values staged(static_cast<size_t>(fold.staged_count()));
  for_each_element(fold, [&](size_t from, size_t to) { staged[to] = plain[from]; });
  return staged;
}

Values unfolded(const BlockFold& fold, const Values& staged) {
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

TEST(ConvStaging, StagedConvolutionsAreTheSame) {
  Generator generator(11);
  int folds = 0;
  for (int i = 0; i < 600; ++i) {
    const ConvProblem p = random_problem(generator);
    const Values x = random_values(generator, count_of(p.x)),
                 weight = random_values(generator, count_of(p.weight)),
                 dy = random_values(generator, count_of(p.y));
    Values y(dy.size()), dx(x.size()), dweight(weight.size());
    for_each_product(p, [&](size_t in, size_t filter, size_t out) {
      y[out] += x[in] * weight[filter];
      dx[in] += dy[out] * weight[filter];
      dweight[filter] += x[in] * dy[out];
    });
    for (const ConvStaging& staging : conv_stagings(p, true)) {
      SCOPED_TRACE(std::to_string(i) + ": " + to_string(staging));
      folds += staging.folds() ? 1 : 0;
      const ConvProblem s = staged_problem(p, staging);
      const BlockFold x_fold = fold_of_x(p, staging), weight_fold = fold_of_weight(p, staging);
      ASSERT_EQ(s.y, p.y);
      ASSERT_EQ(x_fold.staged_count(), count_of(s.x));
      ASSERT_EQ(weight_fold.staged_count(), count_of(s.weight));
      const Values staged_x = folded(x_fold, x), staged_weight = folded(weight_fold, weight);
      Values staged_y(y.size()), staged_dx(staged_x.size()), staged_dweight(staged_weight.size());
      for_each_product(s, [&](size_t in, size_t filter, size_t out) {
        staged_y[out] += staged_x[in] * staged_weight[filter];
        staged_dx[in] += dy[out] * staged_weight[filter];
        staged_dweight[filter] += staged_x[in] * dy[out];
      });
      ASSERT_EQ(staged_y, y);
      ASSERT_EQ(unfolded(x_fold, staged_dx), dx);
      ASSERT_EQ(unfolded(weight_fold, staged_dweight), dweight);
    }
  }
  EXPECT_GT(folds, 50);
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

TEST(ConvStaging, TheFirstLayerOfResNet) {
  const std::vector<ConvStaging> stagings = conv_stagings(first_layer(3), true);
  ASSERT_EQ(stagings.size(), 3u);
  EXPECT_EQ(to_string(stagings[0]), "1x1x4");
  EXPECT_EQ(to_string(stagings[1]), "1x1x8");
  EXPECT_EQ(to_string(stagings[2]), "2x2x16");
  const ConvProblem folded = staged_problem(first_layer(3), stagings[2]);
  EXPECT_EQ(folded.x, (std::array<int64_t, 4>{2, 16, 115, 115}));
  EXPECT_EQ(folded.weight, (std::array<int64_t, 4>{64, 16, 4, 4}));
  EXPECT_EQ(folded.stride, (std::array<int64_t, 2>{1, 1}));
  EXPECT_EQ(folded.padding, (std::array<int64_t, 2>{0, 0}));
}

TEST(ConvStaging, OnlyWhereTensorCoresMissChannels) {
  EXPECT_TRUE(conv_stagings(first_layer(3), false).empty());
  EXPECT_TRUE(conv_stagings(first_layer(8), true).empty());
  EXPECT_TRUE(conv_stagings(first_layer(64), true).empty());
  ConvProblem planar = first_layer(3);
  planar.layout = Layout::kNCHW;
  EXPECT_TRUE(conv_stagings(planar, true).empty());
  ConvProblem grouped = first_layer(6);
  grouped.weight[1] = 3;
  EXPECT_TRUE(conv_stagings(grouped, true).empty());

  EXPECT_EQ(conv_stagings(first_layer(33), true), (std::vector<ConvStaging>{{.channels = 40}}));
  ConvProblem dilated = first_layer(3);
  dilated.dilation = {2, 2};
  EXPECT_EQ(conv_stagings(dilated, true).size(), 2u);
  ConvProblem skipping = first_layer(3);
  skipping.weight[2] = 1;
  EXPECT_EQ(conv_stagings(skipping, true).size(), 2u);
  ConvProblem tf32 = first_layer(3);
  tf32.dtype = DType::kFloat32;
  EXPECT_EQ(conv_stagings(tf32, true),
            (std::vector<ConvStaging>{{.channels = 4}, {.block = {2, 2}, .channels = 12}}));
}

}  // namespace
}  // namespace sinter::cuda
