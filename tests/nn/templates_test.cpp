// Templates of media of images, and 1:N over them: by hand, and against plain loops.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/metrics/identification.h>
#include <sinter/nn/metrics/templates.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::message_of;

/// One template of two media: {(2,0), (0,2)} and {(3,1)}.
Templates pooled(bool unit, const std::vector<double>& weights) {
  TemplatePool pool(2, unit);
  pool.add(7, 1, std::vector<float>{2, 0}, weights[0]);
  pool.add(7, 1, std::vector<float>{0, 2}, weights[1]);
  pool.add(7, 2, std::vector<float>{3, 1}, weights[2]);
  return pool.finish();
}

TEST(TemplatesTest, AMediumIsAMeanAndATemplateASum) {
  const Templates plain = pooled(false, {1, 1, 1});
  ASSERT_EQ(plain.ids, std::vector<int64_t>{7});
  EXPECT_NEAR(plain.row(0)[0], .8944f, 5e-5f);  // (1,1) + (3,1)
  EXPECT_NEAR(plain.row(0)[1], .4472f, 5e-5f);
  const Templates scored = pooled(false, {1, .5, 1});
  EXPECT_NEAR(scored.row(0)[0], .9363f, 5e-5f);  // (1,.5) + (3,1)
  EXPECT_NEAR(scored.row(0)[1], .3511f, 5e-5f);
  // Of length one each: (.5,.5) + (3,1)/sqrt(10).
  const double x = .5 + 3 / std::sqrt(10.0), y = .5 + 1 / std::sqrt(10.0);
  EXPECT_NEAR(pooled(true, {1, 1, 1}).row(0)[0], static_cast<float>(x / std::hypot(x, y)), 1e-6f);
}

TEST(TemplatesTest, TemplatesComeInOrderAndAreFound) {
  TemplatePool pool(2);
  pool.add(-3, 9, std::vector<float>{0, 5});
  pool.add(-3, 9, std::vector<float>{0, 1});
  pool.add(4, 1, std::vector<float>{0, 0});
  pool.add(8, 0, std::vector<float>{3, 4});
  const Templates all = pool.finish();
  EXPECT_EQ(all.ids, (std::vector<int64_t>{-3, 4, 8}));
  EXPECT_EQ(all.rows, (std::vector<float>{0, 1, 0, 0, .6f, .8f}));
  EXPECT_EQ(all.find(8), 2u);
  EXPECT_EQ(all.find(5), std::nullopt);
  EXPECT_EQ(all.compare(0, 2), .8f);
  EXPECT_EQ(pool.finish().size(), 0u) << "the pool is empty then";
  EXPECT_EQ(pool.finish().dims, 2);
}

TEST(TemplatesTest, AgreesWithPlainLoops) {
  Generator random(5);
  std::map<std::pair<int64_t, int64_t>, std::vector<std::vector<float>>> images;
  for (int i = 0; i < 300; ++i) {
    std::vector<float> row(19);
    for (float& value : row) value = static_cast<float>(random.normal());
    images[{static_cast<int64_t>(random.below(20)), static_cast<int64_t>(random.below(5))}].push_back(row);
  }
  TemplatePool pool(19);
  std::map<int64_t, std::vector<double>> sums;
  for (const auto& [key, rows] : images) {
    auto& sum = sums.try_emplace(key.first, 19, 0.0).first->second;
    for (const auto& row : rows) {
      pool.add(key.first, key.second, row);
      for (size_t d = 0; d < 19; ++d)
        sum[d] += static_cast<double>(row[d]) / static_cast<double>(rows.size());
    }
  }
  const Templates all = pool.finish();
  ASSERT_EQ(all.size(), sums.size());
  for (const auto& [id, sum] : sums) {
    double squares = 0.0;
    for (const double value : sum) squares += value * value;
    for (size_t d = 0; d < 19; ++d)
      EXPECT_NEAR(static_cast<double>(all.row(*all.find(id))[d]), sum[d] / std::sqrt(squares), 1e-6);
  }
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all.compare(i, i), 1.0f, 1e-6f);
}

TEST(TemplatesTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(message_of<InvalidArgument>([] { TemplatePool(0); }),
            "[templates] expected dimensions but got 0");
  TemplatePool pool(2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { pool.add(1, 1, std::vector<float>{1}); }),
            "[templates] expected 2 dimensions but got 1");
  pool.add(3, 2, std::vector<float>{1, 0});
  EXPECT_EQ(
      message_of<InvalidArgument>([&] {
        pool.add(3, 1, std::vector<float>{1, 0});
      }),
      "[templates] expected images in the order of templates and media but got template 3, medium 1 behind "
      "template 3, medium 2");
}

/// Templates on a plane, by their angle in degrees.
Templates at_angles(const std::vector<double>& degrees) {
  Templates all{.dims = 2, .ids = {}, .rows = {}};
  for (size_t i = 0; i < degrees.size(); ++i) {
    const double angle = degrees[i] * 3.14159265358979323846 / 180;
    all.ids.push_back(static_cast<int64_t>(i));
    all.rows.push_back(static_cast<float>(std::cos(angle)));
    all.rows.push_back(static_cast<float>(std::sin(angle)));
  }
  return all;
}

TEST(IdentificationTest, ByHand) {
  // The gallery: subjects 0, 1, 2 at 0, 30 and 90 degrees. Probes: 0 at 10 (first), 1 at 10 (second), 2 at 0
  // (third); strangers at 60 (30 from two), 100 (10) and 150 (60).
  const Templates templates = at_angles({0, 30, 90, 10, 10, 0, 60, 100, 150});
  const std::vector<Enrolled> gallery = {{0, 0}, {1, 1}, {2, 2}};
  const std::vector<Enrolled> probes = {{3, 0}, {4, 1}, {5, 2}, {6, 50}, {7, 51}, {8, 52}};
  const std::vector<int64_t> ranks = {1, 2, 3}, rates = {1000, 3, 2, 1};
  const IdentificationResult result = identify(templates, gallery, probes, ranks, rates);
  EXPECT_EQ(result.mated, 3);
  EXPECT_EQ(result.non_mated, 3);
  EXPECT_EQ(result.found, (std::vector<double>{1.0 / 3, 2.0 / 3, 1.0}));
  ASSERT_EQ(result.open_set.size(), 4u);
  EXPECT_EQ(result.open_set[0].allowed, 0);  // above cos 10: none
  EXPECT_NEAR(result.open_set[0].threshold, std::cos(3.14159265 / 18), 1e-6);
  EXPECT_EQ(result.open_set[1].allowed, 1);  // above cos 30: the first
  EXPECT_NEAR(result.open_set[1].threshold, std::sqrt(.75), 1e-6);
  EXPECT_NEAR(result.open_set[1].fnir, 2.0 / 3, 1e-12);
  EXPECT_EQ(result.open_set[2].allowed, 1);
  EXPECT_EQ(result.open_set[3].allowed, 3);
  EXPECT_EQ(result.open_set[3].threshold, -INFINITY);
}

TEST(IdentificationTest, TiesAreAgainstTheMate) {
  const Templates templates = at_angles({0, 0, 0, 90});
  const std::vector<Enrolled> gallery = {{0, 0}, {1, 1}};
  const std::vector<Enrolled> probes = {{2, 0}, {3, 9}};
  const std::vector<int64_t> ranks = {1, 2}, rates = {1};
  const IdentificationResult result = identify(templates, gallery, probes, ranks, rates);
  EXPECT_EQ(result.found, (std::vector<double>{0.0, 1.0}));
  EXPECT_EQ(result.open_set[0].fnir, 1.0) << "a mate that shares the first place is not the best";
}

TEST(IdentificationTest, AgreesWithPlainLoopsWhateverTheTies) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Generator random(seed);
    std::vector<double> degrees;
    const size_t count = 20 + random.below(60);
    for (size_t i = 0; i < count; ++i) degrees.push_back(static_cast<double>(10 * random.below(12)));
    const Templates templates = at_angles(degrees);
    std::vector<Enrolled> gallery, probes;
    for (size_t i = 0; i < count; ++i)
      (i % 3 == 0 ? gallery : probes).push_back({i, static_cast<int64_t>(random.below(12))});
    const std::vector<int64_t> ranks = {1, 5, 10}, rates = {100, 10, 3};
    std::vector<double> strangers;
    std::vector<std::pair<int64_t, double>> mated;  // rank, best score
    for (const Enrolled& probe : probes) {
      double best = -2, mate = -2;
      for (const Enrolled& one : gallery) {
        const double score = static_cast<double>(templates.compare(one.row, probe.row));
        best = std::max(best, score);
        if (one.subject == probe.subject) mate = std::max(mate, score);
      }
      if (mate == -2) {
        strangers.push_back(best);
        continue;
      }
      int64_t rank = 1;
      for (const Enrolled& one : gallery) {
        if (one.subject != probe.subject &&
            static_cast<double>(templates.compare(one.row, probe.row)) >= mate)
          ++rank;
      }
      mated.emplace_back(rank, best);
    }
    if (mated.empty()) continue;
    const IdentificationResult result = identify(templates, gallery, probes, ranks, rates);
    ASSERT_EQ(result.mated, static_cast<int64_t>(mated.size()));
    const auto share = [&](const auto& which) {
      return static_cast<double>(std::ranges::count_if(mated, which)) / static_cast<double>(mated.size());
    };
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(result.found[i], share([&](const auto& m) { return m.first <= ranks[i]; })) << seed;
    std::ranges::sort(strangers, std::greater<>());
    ASSERT_EQ(result.open_set.size(), strangers.empty() ? 0u : 3u);
    for (size_t i = 0; i < result.open_set.size(); ++i) {
      const size_t k = strangers.size() / static_cast<size_t>(rates[i]);
      EXPECT_EQ(result.open_set[i].allowed, static_cast<int64_t>(k));
      EXPECT_EQ(result.open_set[i].threshold, strangers[k]);
      EXPECT_LE(std::ranges::count_if(strangers, [&](double s) { return s > result.open_set[i].threshold; }),
                result.open_set[i].allowed);
      EXPECT_EQ(result.open_set[i].fnir,
                share([&](const auto& m) { return m.first > 1 || m.second <= strangers[k]; }))
          << seed;
    }
  }
}

TEST(IdentificationTest, WhatDoesNotFitIsRefused) {
  const Templates templates = at_angles({0, 1});
  const std::vector<Enrolled> one = {{0, 0}}, other = {{1, 5}}, outside = {{2, 0}};
  const std::vector<int64_t> ranks = {1}, rates = {10}, none, zero = {0};
  const auto message = [&](const auto& gallery, const auto& probes, const auto& r, const auto& f) {
    return message_of<InvalidArgument>([&] { identify(templates, gallery, probes, r, f); });
  };
  EXPECT_EQ(message(std::vector<Enrolled>{}, one, ranks, rates),
            "[identify] expected a gallery but got none");
  EXPECT_EQ(message(one, outside, ranks, rates), "[identify] expected a row of 2 templates but got 2");
  EXPECT_EQ(message(one, one, zero, rates), "[identify] expected a rank from 1 but got 0");
  EXPECT_EQ(message(one, one, ranks, zero),
            "[identify] expected a rate of one in 1 or more but got one in 0");
  EXPECT_EQ(message(one, other, ranks, rates),
            "[identify] expected a probe whose subject is in the gallery but got 1 others");
  EXPECT_TRUE(identify(templates, one, one, ranks, rates).open_set.empty());
}

}  // namespace
}  // namespace sinter::nn
