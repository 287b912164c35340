// Roc: by hand, against the definitions by plain loops, and against scikit-learn's values.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/metrics/roc.h>

#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using testing::message_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(RocTest, TheThresholdIsTheScoreOfTheFirstImpostorThatIsOneTooMany) {
  // Ten impostors at .1 to 1.0; genuine pairs between them.
  std::vector<float> impostors, genuine = {0.95f, 0.85f, 0.8f, 0.15f};
  for (int i = 1; i <= 10; ++i) impostors.push_back(static_cast<float>(i) / 10.0f);
  const Roc roc(genuine, impostors);
  EXPECT_EQ(roc.genuine(), 4);
  EXPECT_EQ(roc.impostors(), 10);
  const TarAtFar none = roc.tar_at_far(11);  // 10 / 11: no impostor may be accepted
  EXPECT_EQ(none.allowed, 0);
  EXPECT_EQ(none.threshold, 1.0);
  EXPECT_EQ(none.tar, 0.0);
  const TarAtFar one = roc.tar_at_far(10);
  EXPECT_EQ(one.allowed, 1);
  EXPECT_EQ(one.threshold, static_cast<double>(0.9f));
  EXPECT_EQ(one.tar, 0.25);
  const TarAtFar two = roc.tar_at_far(5);  // a genuine pair at the threshold, .8, is not accepted
  EXPECT_EQ(two.allowed, 2);
  EXPECT_EQ(two.threshold, static_cast<double>(0.8f));
  EXPECT_EQ(two.tar, 0.5);
  const TarAtFar all = roc.tar_at_far(1);
  EXPECT_EQ(all.allowed, 10);
  EXPECT_EQ(all.threshold, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(all.tar, 1.0);
}

TEST(RocTest, AllowedImpostorsAreCountedInIntegers) {
  // In floating point 0.001 * 3,000 may come to 2.9999..., and 1e-5 * 15,638,932 is no integer at all.
  for (const auto& [impostors, one_in, allowed] : {std::tuple<int64_t, int64_t, int64_t>{3000, 1000, 3},
                                                   {3000, 100, 30},
                                                   {3000, 10'000, 0},
                                                   {29'000, 1000, 29},
                                                   {156'389, 100'000, 1}}) {
    const Roc roc(std::vector<float>{1.0f}, std::vector<float>(static_cast<size_t>(impostors)));
    EXPECT_EQ(roc.tar_at_far(one_in).allowed, allowed);
  }
}

TEST(RocTest, EqualImpostorsAreAcceptedTogetherOrNotAtAll) {
  const Roc roc(std::vector<float>{0.9f, 0.7f, 0.5f}, std::vector<float>{0.8f, 0.6f, 0.6f, 0.6f, 0.1f});
  EXPECT_EQ(roc.tar_at_far(2).allowed, 2);
  EXPECT_EQ(roc.tar_at_far(2).threshold, static_cast<double>(0.6f));
  EXPECT_EQ(roc.tar_at_far(2).tar, 2.0 / 3.0) << "one of two allowed impostors is accepted";
}

TEST(RocTest, TheAreaCountsTiesHalf) {
  EXPECT_EQ(Roc(std::vector<float>{2.0f, 1.0f}, std::vector<float>{1.0f, 0.0f}).area(), 0.875);
  EXPECT_EQ(Roc(std::vector<float>{1.0f, 1.0f}, std::vector<float>{1.0f}).area(), 0.5);
  EXPECT_EQ(Roc(std::vector<float>{1.0f}, std::vector<float>{2.0f, 3.0f}).area(), 0.0);
  EXPECT_EQ(Roc(std::vector<float>{3.0f}, std::vector<float>{2.0f, 1.0f}).area(), 1.0);
}

TEST(RocTest, TheCurveHasTheCornersAlone) {
  // (0,0); .9 genuine; .8, .7 impostors on one line; .6 both: a slope; .5 genuine.
  const std::vector<RocPoint> curve =
      Roc(std::vector<float>{0.9f, 0.6f, 0.5f}, std::vector<float>{0.8f, 0.7f, 0.6f, 0.4f}).curve();
  const std::vector<std::vector<double>> expected = {{0.9, 0, 0},         {0.8, 0, 1.0 / 3},
                                                     {0.6, 0.5, 1.0 / 3}, {0.5, 0.75, 2.0 / 3},
                                                     {0.4, 0.75, 1},      {-INFINITY, 1, 1}};
  ASSERT_EQ(curve.size(), expected.size());
  for (size_t i = 0; i < curve.size(); ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(curve[i].threshold), static_cast<float>(expected[i][0])) << i;
    EXPECT_EQ(curve[i].far, expected[i][1]) << i;
    EXPECT_EQ(curve[i].tar, expected[i][2]) << i;
  }
}

struct Case {
  std::vector<float> scores;
  std::vector<uint8_t> same;
};

Case random_case(uint64_t seed) {
  Generator random(seed);
  Case result;
  const size_t pairs = 2 + random.below(120);
  const double grid = static_cast<double>(1 + random.below(60));
  for (size_t i = 0; i < pairs; ++i) {
    result.same.push_back(i == 0 ? 1 : i == 1 ? 0 : static_cast<uint8_t>(random.below(2)));
    const double score = std::round((random.normal() + result.same.back()) * grid) / grid;
    result.scores.push_back(random.below(40) == 0 ? kNaN : static_cast<float>(score));
  }
  return result;
}

TEST(RocTest, AgreesWithPlainLoopsWhateverTheTies) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = random_case(seed);
    const Roc roc(c.scores, c.same);
    const auto above = [&](double threshold, int kind) {
      int64_t count = 0;
      for (size_t i = 0; i < c.same.size(); ++i)
        count += c.same[i] == kind && static_cast<double>(c.scores[i]) > threshold ? 1 : 0;
      return count;
    };
    for (const int64_t one_in : {1, 2, 3, 7, 10, 50, 1000}) {
      const TarAtFar result = roc.tar_at_far(one_in);
      const int64_t allowed = roc.impostors() / one_in;
      ASSERT_EQ(result.allowed, allowed);
      ASSERT_LE(above(result.threshold, 0), allowed) << seed;
      if (one_in > 1) {
        ASSERT_EQ(result.tar,
                  static_cast<double>(above(result.threshold, 1)) / static_cast<double>(roc.genuine()))
            << seed;
      }
      // No lower threshold that occurs accepts so few.
      for (const float lower : c.scores) {
        if (static_cast<double>(lower) < result.threshold) {
          ASSERT_GT(above(static_cast<double>(lower), 0), allowed) << seed;
        }
      }
    }
    double wins = 0.0;
    for (size_t i = 0; i < c.same.size(); ++i) {
      for (size_t j = 0; j < c.same.size(); ++j) {
        if (c.same[i] != 1 || c.same[j] != 0) continue;
        const double a = std::isnan(c.scores[i]) ? -INFINITY : static_cast<double>(c.scores[i]);
        const double b = std::isnan(c.scores[j]) ? -INFINITY : static_cast<double>(c.scores[j]);
        wins += a > b ? 1.0 : a == b ? 0.5 : 0.0;
      }
    }
    ASSERT_NEAR(roc.area(), wins / static_cast<double>(roc.genuine() * roc.impostors()), 1e-12) << seed;
    // The curve: what its thresholds accept, and every other threshold on its lines.
    const std::vector<RocPoint> curve = roc.curve();
    ASSERT_LE(curve.size(), static_cast<size_t>(2 * roc.genuine() + 2));
    double area = 0.0;
    for (size_t i = 1; i < curve.size(); ++i)
      area += (curve[i].far - curve[i - 1].far) * (curve[i].tar + curve[i - 1].tar) / 2;
    ASSERT_NEAR(area, roc.area(), 1e-12) << seed;
    for (size_t i = 0; i + 1 < curve.size(); ++i) {
      ASSERT_EQ(curve[i].far,
                static_cast<double>(above(curve[i].threshold, 0)) / static_cast<double>(roc.impostors()));
      ASSERT_EQ(curve[i].tar,
                static_cast<double>(above(curve[i].threshold, 1)) / static_cast<double>(roc.genuine()));
    }
    ASSERT_EQ(curve.back().far, 1.0);
    ASSERT_EQ(curve.back().tar, 1.0);
  }
}

TEST(RocTest, InsightfacesRuleIsThatOfScikitLearn) {
  const auto stored = read_safetensors(test::test_data() / "reference/roc.safetensors")
                          .tensor("insightface")
                          .to_vector<double>();
  const std::vector<std::pair<int64_t, int64_t>> cases = {
      {50, 4}, {200, 20}, {1000, 100}, {3000, 1000}, {3000, 1 << 20}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [pairs, steps] = cases[i];
    const std::string name = "roc." + std::to_string(i);
    std::vector<float> scores =
        sinter::testing::reference_values(name + ".scores", {pairs}).to_vector<float>();
    std::vector<uint8_t> same;
    for (int64_t j = 0; j < pairs; ++j) {
      same.push_back(
          sinter::testing::reference_word(sinter::testing::reference_seed(name + ".labels"), j) % 3 == 0 ? 1
                                                                                                         : 0);
      float& score = scores[static_cast<size_t>(j)];
      const auto grid = static_cast<float>(steps);
      score = std::floor((score + (same.back() != 0 ? 0.75f : 0.0f)) * grid) / grid;
    }
    const Roc roc(scores, same);
    const double* expected = stored.data() + 7 * i;
    for (const int64_t one_in : {1000, 100, 10}) {
      const RocPoint point = roc.nearest_to_far(one_in);
      EXPECT_NEAR(point.far, *expected++, 1e-12) << i << " one in " << one_in;
      EXPECT_NEAR(point.tar, *expected++, 1e-12) << i << " one in " << one_in;
    }
    EXPECT_NEAR(roc.area(), *expected, 1e-12) << i;
  }
}

TEST(RocTest, InsightfacesRuleTakesTheHighestOfEquallyNearPoints) {
  // Corners at a FAR of 0 (TAR 0 and 1/2) and of 1/2: both are a quarter from 1/4.
  const Roc roc(std::vector<float>{0.9f, 0.6f}, std::vector<float>{0.8f, 0.1f});
  EXPECT_EQ(roc.nearest_to_far(4).far, 0.5);
  EXPECT_EQ(roc.nearest_to_far(4).tar, 1.0);
  EXPECT_EQ(roc.nearest_to_far(1000).far, 0.0);
  EXPECT_EQ(roc.nearest_to_far(1000).tar, 0.5);
  EXPECT_EQ(roc.tar_at_far(4).tar, 0.5) << "the exact rule keeps to what is allowed";
}

TEST(RocTest, WhatIsNotANumberIsNeverAccepted) {
  const Roc roc(std::vector<float>{kNaN, 0.5f}, std::vector<float>{0.4f, kNaN});
  EXPECT_EQ(roc.tar_at_far(2).threshold, -INFINITY);
  EXPECT_EQ(roc.tar_at_far(2).tar, 0.5);
  EXPECT_EQ(roc.tar_at_far(3).tar, 0.5);
  EXPECT_EQ(roc.area(), 0.625);
}

TEST(RocTest, WhatDoesNotFitIsRefused) {
  const std::vector<float> scores(2, 1.0f);
  EXPECT_EQ(message_of<InvalidArgument>([&] { Roc(scores, std::vector<uint8_t>{1}); }),
            "[roc] expected as many scores as truths but got 2 and 1");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              Roc(scores, std::vector<uint8_t>{1, 1});
            }),
            "[roc] expected pairs of the same person and of different ones but got 2 and 0");
  const Roc roc(scores, std::vector<uint8_t>{1, 0});
  EXPECT_EQ(message_of<InvalidArgument>([&] { roc.tar_at_far(0); }),
            "[roc] expected a false accept rate of one in 1 or more but got one in 0");
  EXPECT_EQ(message_of<InvalidArgument>([&] { roc.nearest_to_far(0); }),
            "[roc] expected a false accept rate of one in 1 or more but got one in 0");
}

}  // namespace
}  // namespace sinter::nn
