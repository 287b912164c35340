// Schedules against PyTorch's values, from tests/reference/nn_values.py.
#include <sinter/nn/schedule/schedule.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::message_of;

void expect_rates(const Schedule& schedule, const std::vector<int64_t>& steps,
                  const std::vector<double>& rates) {
  ASSERT_EQ(steps.size(), rates.size());
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(schedule(steps[i]), rates[i], 1e-15) << "step " << steps[i];
}

TEST(ScheduleTest, StepsAgreeWithPyTorch) {
  expect_rates(StepSchedule{.base = 0.4, .every = 3, .gamma = 0.5}, {0, 2, 3, 5, 6, 11},
               {0.4, 0.4, 0.2, 0.2, 0.1, 0.05});
}

TEST(ScheduleTest, MilestonesAgreeWithPyTorch) {
  expect_rates(MultiStepSchedule{.base = 0.4, .milestones = {2, 5}, .gamma = 0.1}, {0, 1, 2, 4, 5, 9},
               {0.4, 0.4, 0.04, 0.04, 0.004, 0.004});
}

TEST(ScheduleTest, CosineAgreesWithPyTorch) {
  const CosineSchedule schedule{.base = 0.4, .steps = 10, .end = 0.01};
  expect_rates(
      schedule, {0, 1, 4, 5, 9, 10},
      {0.4, 0.39045602067755497, 0.2652583139031148, 0.20500000000000002, 0.019543979322445063, 0.01});
  EXPECT_DOUBLE_EQ(schedule(1000), 0.01) << "stays at the end";
}

TEST(ScheduleTest, PolynomialAgreesWithPyTorch) {
  expect_rates(PolynomialSchedule{.base = 0.4, .steps = 10, .power = 2.0}, {0, 1, 4, 5, 9, 10, 12},
               {0.4, 0.32400000000000007, 0.14400000000000002, 0.10000000000000002, 0.004, 0.0, 0.0});
  EXPECT_NEAR((PolynomialSchedule{.base = 0.4, .steps = 10, .power = 1.0, .end = 0.2}(5)), 0.3, 1e-15);
}

TEST(ScheduleTest, OneCycleAgreesWithPyTorch) {
  expect_rates(OneCycleSchedule{.peak = 0.4, .steps = 20}, {0, 1, 4, 5, 6, 12, 19},
               {0.016000000000000014, 0.05266873708001013, 0.3633312629199899, 0.4, 0.39498560249403497,
                0.2000008, 1.6e-06});
  const OneCycleSchedule linear{.peak = 0.4,
                                .steps = 20,
                                .rising = 0.23,
                                .initial_divisor = 10,
                                .final_divisor = 100,
                                .anneal = Anneal::kLinear};
  expect_rates(linear, {0, 1, 3, 4, 5, 12, 19},
               {0.04, 0.13999999999999999, 0.33999999999999997, 0.38962077922077926, 0.3636727272727273,
                0.18203636363636366, 0.00040000000000001146});
  EXPECT_DOUBLE_EQ(linear(20), linear(19)) << "stays at the end";
}

TEST(ScheduleTest, OneCycleIsDefinedAtItsLimits) {
  EXPECT_DOUBLE_EQ((OneCycleSchedule{.peak = 0.4, .steps = 1}(0)), 0.4 / 25 / 1e4);
  EXPECT_DOUBLE_EQ((OneCycleSchedule{.peak = 0.4, .steps = 8, .rising = 1.0}(7)), 0.4);
  EXPECT_LT((OneCycleSchedule{.peak = 0.4, .steps = 8, .rising = 0.0}(0)), 0.4);
}

TEST(ScheduleTest, WarmupAgreesWithPyTorch) {
  const Warmup schedule{CosineSchedule{.base = 0.4, .steps = 8}, 4, 0.25};
  expect_rates(
      schedule, {0, 1, 3, 4, 5, 11},
      {0.1, 0.17500000000000002, 0.32500000000000007, 0.4, 0.38477590650225735, 0.015224093497742654});
  EXPECT_DOUBLE_EQ((Warmup{CosineSchedule{.base = 0.4, .steps = 8}, 0}(3)),
                   (CosineSchedule{.base = 0.4, .steps = 8}(3)));
}

TEST(ScheduleTest, MistakesAreNamed) {
  EXPECT_EQ(message_of([] { StepSchedule{}(-1); }), "[schedule] expected a step >= 0 but got -1");
  EXPECT_EQ(message_of([] { CosineSchedule{.base = 0.1, .steps = 0}(0); }),
            "[schedule] expected a positive number of steps but got 0");
  EXPECT_EQ(message_of([] {
              MultiStepSchedule{.base = 0.1, .milestones = {5, 2}}(0);
            }),
            "[schedule] expected milestones in ascending order");
  EXPECT_EQ(message_of([] { OneCycleSchedule{.peak = 0.1, .steps = 5, .rising = 1.5}(0); }),
            "[schedule] expected a rising share in [0, 1] but got 1.5");
  EXPECT_EQ(message_of([] { Warmup{}(0); }), "[schedule] the warm-up has no schedule behind it");
}

}  // namespace
}  // namespace sinter::nn
