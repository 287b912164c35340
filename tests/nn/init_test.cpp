// Initial values: their moments, bounds and reproducibility.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/init/init.h>

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

}  // namespace
}  // namespace sinter::nn
