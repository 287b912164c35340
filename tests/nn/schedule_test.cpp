// Schedules against PyTorch's values, from tests/reference/nn_values.py.
#include <sinter/nn/schedule/plateau.h>
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
                                .warmup_fraction = 0.23,
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
  EXPECT_DOUBLE_EQ((OneCycleSchedule{.peak = 0.4, .steps = 8, .warmup_fraction = 1.0}(7)), 0.4);
  EXPECT_LT((OneCycleSchedule{.peak = 0.4, .steps = 8, .warmup_fraction = 0.0}(0)), 0.4);
}

TEST(ScheduleTest, OneCycleReachesItsPeakAtAWholeStep) {
  // rising * steps is 1 but for rounding, so that step 0 is the peak.
  EXPECT_DOUBLE_EQ((OneCycleSchedule{.peak = 1, .steps = 10, .warmup_fraction = 0.1}(0)), 1.0);
  for (int64_t steps = 1; steps <= 300; ++steps) {
    for (int64_t top = 0; top < steps; ++top) {
      const double share = static_cast<double>(top + 1) / static_cast<double>(steps);
      ASSERT_DOUBLE_EQ((OneCycleSchedule{.peak = 1, .steps = steps, .warmup_fraction = share}(top)), 1.0)
          << top << " of " << steps;
    }
  }
}

TEST(ScheduleTest, OneCycleMovesTheMomentumTheOtherWay) {
  const OneCycleSchedule cycle{.peak = 0.4, .steps = 20, .base_momentum = 0.8, .max_momentum = 0.9};
  EXPECT_DOUBLE_EQ(cycle.momentum(0), 0.9);
  EXPECT_DOUBLE_EQ(cycle.momentum(5), 0.8);
  EXPECT_DOUBLE_EQ(cycle.momentum(19), 0.9);
  // Between two ends both follow one curve: torch anneals them by the same share.
  for (int64_t step = 0; step <= 5; ++step) {
    const double share = (cycle(step) - 0.4 / 25) / (0.4 - 0.4 / 25);
    EXPECT_NEAR(cycle.momentum(step), 0.9 - 0.1 * share, 1e-12) << step;
  }
  for (int64_t step = 5; step < 20; ++step) {
    const double end = 0.4 / 25 / 1e4, share = (0.4 - cycle(step)) / (0.4 - end);
    EXPECT_NEAR(cycle.momentum(step), 0.8 + 0.1 * share, 1e-12) << step;
  }
}

TEST(PlateauTest, ReducesAfterThePatience) {
  ReduceOnPlateau plateau({.base = 1.0, .factor = 0.5, .patience = 2, .threshold = 0.1, .min_rate = 0.2});
  std::vector<double> rates;
  // An improvement is one of at least 10 %: 0.95 and 0.91 are none, 0.8 is.
  for (const double loss : {1.0, 0.95, 0.91, 0.8, 0.8, 0.8, 0.8, double{NAN}, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8}) {
    plateau.update(loss);
    rates.push_back(plateau.rate());
  }
  EXPECT_EQ(rates, (std::vector<double>{1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2}));
  EXPECT_DOUBLE_EQ(plateau.best(), 0.8);
}

TEST(PlateauTest, MayWaitForLargerValuesAndCoolDown) {
  ReduceOnPlateau plateau({.base = 1.0,
                           .factor = 0.1,
                           .patience = 0,
                           .threshold = 0.5,
                           .threshold_is_absolute = true,
                           .maximize = true,
                           .cooldown = 2});
  EXPECT_FALSE(plateau.update(10.0));
  EXPECT_TRUE(plateau.update(10.4)) << "not half a point more";
  EXPECT_FALSE(plateau.update(10.4)) << "cooling down";
  EXPECT_FALSE(plateau.update(10.4)) << "cooling down";
  EXPECT_TRUE(plateau.update(10.4));
  EXPECT_NEAR(plateau.rate(), 0.01, 1e-15);
}

TEST(PlateauTest, ItsStateResumes) {
  const PlateauOptions options{.base = 1.0, .factor = 0.5, .patience = 3, .cooldown = 1};
  ReduceOnPlateau whole(options), first(options);
  const auto loss = [](int i) { return i < 4 ? 5.0 - i : 1.0 + (i * 7 % 3); };
  for (int i = 0; i < 7; ++i) {
    whole.update(loss(i));
    first.update(loss(i));
  }
  ReduceOnPlateau resumed(options);
  resumed.load_state(first.state());
  for (int i = 7; i < 30; ++i) {
    EXPECT_EQ(resumed.update(loss(i)), whole.update(loss(i))) << i;
    EXPECT_EQ(resumed.rate(), whole.rate()) << i;
  }
  EXPECT_LT(whole.rate(), 0.1);
  EXPECT_EQ(message_of([&] { resumed.load_state({}); }),
            "[plateau] expected a float64 scalar 'rate' in the state");
  EXPECT_EQ(message_of([] { ReduceOnPlateau({.factor = 1.0}); }),
            "[plateau] expected a factor in (0, 1) but got 1");
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
  EXPECT_EQ(message_of([] { OneCycleSchedule{.peak = 0.1, .steps = 5, .warmup_fraction = 1.5}(0); }),
            "[schedule] expected a rising share in [0, 1] but got 1.5");
  EXPECT_EQ(message_of([] { Warmup{}(0); }), "[schedule] the warm-up has no schedule behind it");
}

}  // namespace
}  // namespace sinter::nn
