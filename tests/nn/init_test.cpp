// Initial values: their moments, bounds and reproducibility.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/init/whitening.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::message_of;

struct Moments {
  double mean = 0.0, deviation = 0.0, lowest = 0.0, highest = 0.0;
};

Moments moments(const Tensor& tensor) {
  const std::vector<float> values = tensor.to_vector<float>();
  Moments result;
  for (const float value : values)
    result.mean += static_cast<double>(value) / static_cast<double>(values.size());
  for (const float value : values) result.deviation += std::pow(static_cast<double>(value) - result.mean, 2);
  result.deviation = std::sqrt(result.deviation / static_cast<double>(values.size()));
  result.lowest = static_cast<double>(*std::ranges::min_element(values));
  result.highest = static_cast<double>(*std::ranges::max_element(values));
  return result;
}

// 115,200 values: the mean is within 5 deviations / sqrt(n) = 0.015 deviations, the deviation within 1.1 %.
const Shape kFilter{128, 100, 3, 3};
constexpr double kMeanError = 0.015;
constexpr double kDeviationError = 0.011;

void expect_moments(const Tensor& tensor, double deviation) {
  const Moments found = moments(tensor);
  EXPECT_NEAR(found.mean, 0.0, kMeanError * deviation);
  EXPECT_NEAR(found.deviation, deviation, kDeviationError * deviation);
}

TEST(InitTest, FanCountsConnections) {
  EXPECT_EQ(init::fan(kFilter, init::Fan::kIn), 900);
  EXPECT_EQ(init::fan(kFilter, init::Fan::kOut), 1152);
  EXPECT_EQ(init::fan({7, 5}, init::Fan::kIn), 5);
  EXPECT_EQ(init::fan({7, 5}, init::Fan::kOut), 7);
  EXPECT_EQ(message_of([] { init::fan({7}, init::Fan::kIn); }),
            "[init] expected a weight of rank 2 or more but got shape (7,)");
}

TEST(InitTest, DeviationsFollowTheFormulas) {
  Generator generator(1);
  expect_moments(init::kaiming_normal(kFilter, generator), std::sqrt(2.0 / 900));
  expect_moments(init::kaiming_normal(kFilter, generator, {.fan = init::Fan::kOut}), std::sqrt(2.0 / 1152));
  expect_moments(init::kaiming_normal(kFilter, generator, {.negative_slope = 1.0}), std::sqrt(1.0 / 900));
  expect_moments(init::kaiming_uniform(kFilter, generator), std::sqrt(2.0 / 900));
  expect_moments(init::xavier_normal(kFilter, generator), std::sqrt(2.0 / 2052));
  expect_moments(init::xavier_uniform(kFilter, generator, 2.0), 2.0 * std::sqrt(2.0 / 2052));
  const Moments normal = moments(init::normal(kFilter, 3.0, 0.5, generator));
  EXPECT_NEAR(normal.mean, 3.0, 0.5 * kMeanError);
  EXPECT_NEAR(normal.deviation, 0.5, 0.5 * kDeviationError);
}

TEST(InitTest, NormalHasTailsAndUniformHasBounds) {
  Generator generator(2);
  const Moments normal = moments(init::normal({1'000'000}, 0.0, 1.0, generator));
  EXPECT_GT(normal.highest, 4.0);
  EXPECT_LT(normal.lowest, -4.0);
  const Moments uniform = moments(init::uniform({1'000'000}, -2.0, 5.0, generator));
  EXPECT_GE(uniform.lowest, -2.0);
  EXPECT_LE(uniform.highest, 5.0);
  EXPECT_NEAR(uniform.lowest, -2.0, 1e-4);
  EXPECT_NEAR(uniform.highest, 5.0, 1e-4);
}

TEST(InitTest, LayerDefaultsAreWithinOneBySqrtFanIn) {
  Generator generator(3);
  const Moments weight = moments(init::default_weight(kFilter, generator));
  EXPECT_LE(weight.highest, 1.0 / 30 + 1e-7);
  EXPECT_NEAR(weight.deviation, 1.0 / 30 / std::sqrt(3.0), kDeviationError / 30);
  const Tensor bias = init::default_bias(kFilter, generator);
  EXPECT_EQ(bias.shape(), Shape{128});
  EXPECT_LE(moments(bias).highest, 1.0 / 30 + 1e-7);
  EXPECT_GT(moments(bias).highest, 0.8 / 30);
}

TEST(InitTest, SameSeedSameValuesWhateverTheThreads) {
  const int threads = num_threads();
  Generator generator(4);
  const std::vector<float> expected = init::normal({100'001}, 0.0, 1.0, generator).to_vector<float>();
  const std::vector<float> next = init::normal({100'001}, 0.0, 1.0, generator).to_vector<float>();
  EXPECT_NE(expected, next) << "the generator moves on";
  set_num_threads(1);
  generator = Generator(4);
  EXPECT_EQ(init::normal({100'001}, 0.0, 1.0, generator).to_vector<float>(), expected);
  EXPECT_EQ(init::normal({100'001}, 0.0, 1.0, generator).to_vector<float>(), next);
  set_num_threads(threads);
}

TEST(InitTest, EmptyAndOddCountsWork) {
  Generator generator(5);
  EXPECT_EQ(init::normal({0}, 0.0, 1.0, generator).numel(), 0);
  EXPECT_EQ(init::normal({1}, 0.0, 1.0, generator).numel(), 1);
  EXPECT_EQ(init::constant({2}, 0.5).to_vector<float>(), (std::vector<float>{0.5f, 0.5f}));
}

TEST(InitTest, IdentityFiltersHandTheirInputOn) {
  Generator generator(6), same(6);
  const Tensor more = init::dirac({5, 2, 3, 2}, generator);
  const std::vector<float> values = more.to_vector<float>();
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i == 3 ? 1.0f : 0.0f) << i;
  for (int64_t i = 12; i < 24; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i == 21 ? 1.0f : 0.0f) << i;
  EXPECT_EQ(std::vector<float>(values.begin() + 24, values.end()),
            init::default_weight({3, 2, 3, 2}, same).to_vector<float>());
  const Tensor fewer = init::dirac({1, 2, 1, 1}, generator);
  EXPECT_EQ(fewer.to_vector<float>(), (std::vector<float>{1.0f, 0.0f}));
  EXPECT_EQ(init::dirac({2, 0, 3, 3}, generator).numel(), 0);
  EXPECT_EQ(message_of([&] {
              init::dirac({2, 2}, generator);
            }),
            "[init] expected filters of rank 4 but got shape (2, 2)");
}

// ---- whitening

/// The mean of p p^T over all patches p of height x width, in double precision, row by row.
std::vector<double> moments_of_patches(const Tensor& images, int64_t height, int64_t width) {
  const Shape& s = images.shape();
  const int64_t size = s[1] * height * width;
  std::vector<double> sum(static_cast<size_t>(size * size)), patch;
  double patches = 0.0;
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t y = 0; y + height <= s[2]; ++y) {
      for (int64_t x = 0; x + width <= s[3]; ++x, ++patches) {
        patch.clear();
        for (int64_t i = 0; i < size; ++i) {
          const int64_t c = i / (height * width), dy = i / width % height, dx = i % width;
          patch.push_back(
              static_cast<double>(images.data<float>()[((n * s[1] + c) * s[2] + y + dy) * s[3] + x + dx]));
        }
        for (int64_t i = 0; i < size * size; ++i)
          sum[static_cast<size_t>(i)] +=
              patch[static_cast<size_t>(i / size)] * patch[static_cast<size_t>(i % size)];
      }
    }
  }
  for (double& value : sum) value /= patches;
  return sum;
}

TEST(WhiteningTest, OutputsAreUncorrelatedAndOfOneSize) {
  Generator generator(7);
  const Tensor images = init::normal({70, 3, 9, 12}, 0.5, 1.0, generator);
  for (float *x = images.data<float>(), *end = x + images.numel(); x + 1 < end; ++x) x[1] += 0.5f * x[0];
  const Tensor filters = init::whitening_filters(images, 2, 3, 1e-9);
  ASSERT_EQ(filters.shape(), (Shape{18, 3, 2, 3}));
  const std::vector<double> moments = moments_of_patches(images, 2, 3);
  const float* const f = filters.data<float>();
  double before = 0.0;  // a filter is the longer, the smaller its eigenvalue
  for (int64_t a = 0; a < 18; ++a) {
    double length = 0.0;
    for (int64_t i = 0; i < 18; ++i) length += std::pow(static_cast<double>(f[a * 18 + i]), 2);
    EXPECT_GT(length, before * (1 - 1e-6)) << a;
    before = length;
    EXPECT_GT(*std::max_element(f + a * 18, f + (a + 1) * 18),
              -*std::min_element(f + a * 18, f + (a + 1) * 18))
        << a;
    for (int64_t b = 0; b < 18; ++b) {
      double product = 0.0;
      for (int64_t i = 0; i < 18 * 18; ++i)
        product +=
            static_cast<double>(f[a * 18 + i / 18] * f[b * 18 + i % 18]) * moments[static_cast<size_t>(i)];
      EXPECT_NEAR(product, a == b ? 1.0 : 0.0, 1e-4) << a << " and " << b;
    }
  }
  const int threads = num_threads();
  set_num_threads(3);
  EXPECT_EQ(init::whitening_filters(images, 2, 3, 1e-9).to_vector<float>(), filters.to_vector<float>());
  set_num_threads(threads);
}

TEST(WhiteningTest, ImagesWithoutContrastGiveFiniteFilters) {
  const Tensor filters = init::whitening_filters(Tensor::zeros({2, 1, 4, 4}), 2, 2, 0.25);
  double squares = 0.0;
  for (const float value : filters.to_vector<float>()) squares += std::pow(static_cast<double>(value), 2);
  EXPECT_NEAR(squares, 4 / 0.25, 1e-4) << "four filters of length 1 / sqrt(epsilon)";
}

TEST(WhiteningTest, RefusesWhatHasNoPatches) {
  const Tensor images = Tensor::zeros({2, 1, 4, 4});
  EXPECT_EQ(message_of([&] { init::whitening_filters({}, 2, 2); }),
            "[whitening] expected images float32 (N, C, H, W) on the CPU but got none");
  EXPECT_EQ(
      message_of([&] {
        init::whitening_filters(Tensor::zeros({2, 1, 4, 4}, DType::kFloat16), 2, 2);
      }),
      "[whitening] expected images float32 (N, C, H, W) on the CPU but got float16 (2, 1, 4, 4) on cpu");
  EXPECT_EQ(message_of([&] { init::whitening_filters(images, 2, 5); }),
            "[whitening] expected images with patches of 2 x 5 but got shape (2, 1, 4, 4)");
  EXPECT_EQ(message_of([&] {
              init::whitening_filters(Tensor::zeros({0, 1, 4, 4}), 2, 2);
            }),
            "[whitening] expected images with patches of 2 x 2 but got shape (0, 1, 4, 4)");
  EXPECT_EQ(message_of([&] { init::whitening_filters(images, 2, 2, 0.0); }),
            "[whitening] expected an epsilon > 0 but got 0");
  EXPECT_EQ(message_of([&] {
              init::whitening_filters(Tensor::zeros({1, 5, 20, 20}), 15, 14);
            }),
            "[whitening] expected patches of at most 1024 values but got 5 x 15 x 14");
  EXPECT_EQ(message_of([&] {
              init::whitening_filters(Tensor::full({2, 1, 4, 4}, INFINITY), 2, 2);
            }),
            "[whitening] expected images of finite values");
}

}  // namespace
}  // namespace sinter::nn
