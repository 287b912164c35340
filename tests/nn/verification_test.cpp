// verify_pairs and best_balanced_accuracy, against the definition by plain loops, and by hand.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/metrics/verification.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::message_of;

double accuracy_at(const std::vector<double>& distances, const std::vector<uint8_t>& same, double threshold,
                   const std::vector<size_t>& pairs) {
  int64_t right = 0;
  for (const size_t i : pairs) right += (distances[i] < threshold) == (same[i] != 0) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(pairs.size());
}

/// The protocol word for word: for each fold, every threshold is tried on all pairs of the others.
VerificationResult reference(const std::vector<double>& distances, const std::vector<uint8_t>& same,
                             size_t folds) {
  std::vector<double> accuracies, thresholds;
  size_t begin = 0;
  for (size_t fold = 0; fold < folds; ++fold) {
    const size_t end = begin + same.size() / folds + (fold < same.size() % folds ? 1 : 0);
    std::vector<size_t> own, others;
    for (size_t i = 0; i < same.size(); ++i) (i >= begin && i < end ? own : others).push_back(i);
    double best = -1.0, best_threshold = 0.0;
    for (int t = 0; t < 400; ++t) {
      const double accuracy = accuracy_at(distances, same, t * 0.01, others);
      if (accuracy > best) {
        best = accuracy;
        best_threshold = t * 0.01;
      }
    }
    accuracies.push_back(accuracy_at(distances, same, best_threshold, own));
    thresholds.push_back(best_threshold);
    begin = end;
  }
  VerificationResult result;
  for (size_t i = 0; i < folds; ++i) {
    result.folds.push_back({accuracies[i], thresholds[i]});
    result.accuracy += accuracies[i] / static_cast<double>(folds);
    result.threshold += thresholds[i] / static_cast<double>(folds);
  }
  for (const double accuracy : accuracies)
    result.std += std::pow(accuracy - result.accuracy, 2) / static_cast<double>(folds);
  result.std = std::sqrt(result.std);
  return result;
}

TEST(VerificationTest, FollowsTheProtocolWordForWord) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Generator random(seed);
    const size_t folds = 2 + random.below(9), pairs = folds + random.below(200);
    std::vector<double> distances;
    std::vector<uint8_t> same;
    for (size_t i = 0; i < pairs; ++i) {
      same.push_back(random.below(3) == 0 ? 1 : 0);
      double distance = (same.back() != 0 ? 0.9 : 1.6) + 0.5 * random.normal();
      if (random.below(4) == 0) distance = std::round(distance * 100.0) * 0.01;  // on a threshold
      if (random.below(20) == 0) distance = 4.0;
      distances.push_back(std::max(distance, 0.0));
    }
    const VerificationResult expected = reference(distances, same, folds);
    const VerificationResult actual = verify_pairs(distances, same, static_cast<int>(folds));
    EXPECT_NEAR(actual.accuracy, expected.accuracy, 1e-12) << seed;
    EXPECT_NEAR(actual.std, expected.std, 1e-7) << seed;
    EXPECT_NEAR(actual.threshold, expected.threshold, 1e-12) << seed;
    ASSERT_EQ(actual.folds.size(), folds);
    for (size_t i = 0; i < folds; ++i) {
      EXPECT_EQ(actual.folds[i].accuracy, expected.folds[i].accuracy) << seed << " " << i;
      EXPECT_EQ(actual.folds[i].threshold, expected.folds[i].threshold) << seed << " " << i;
    }
  }
}

TEST(VerificationTest, AThresholdIsACosineToo) {
  EXPECT_NEAR(cosine_of(1.348), 0.326, 1e-12);
  EXPECT_EQ(cosine_of(0.0), 1.0);
  EXPECT_EQ(cosine_of(4.0), -1.0);
}

TEST(VerificationTest, TellsWhatIsApart) {
  std::vector<double> distances;
  std::vector<uint8_t> same;
  for (int i = 0; i < 40; ++i) {
    same.push_back(i % 2 == 0 ? 1 : 0);
    distances.push_back(i % 2 == 0 ? 0.5 : 1.5);
  }
  const VerificationResult result = verify_pairs(distances, same);
  EXPECT_EQ(result.accuracy, 1.0);
  EXPECT_EQ(result.std, 0.0);
  EXPECT_NEAR(result.threshold, 0.51, 1e-12);  // the lowest above 0.5
}

TEST(VerificationTest, NotANumberIsFarApart) {
  const std::vector<double> distances = {std::nan(""), 0.1, std::nan(""), 0.1};
  EXPECT_EQ(verify_pairs(distances, std::vector<uint8_t>{0, 1, 0, 1}, 2).accuracy, 1.0);
  EXPECT_EQ(verify_pairs(distances, std::vector<uint8_t>{1, 1, 1, 1}, 2).accuracy, 0.5);
}

TEST(VerificationTest, BothKindsOfPairsCountTheSame) {
  // Of two same pairs one is told, of ten different ones all: 75 %, where a count of pairs would say 92 %.
  std::vector<double> distances = {0.2, 3.0};
  std::vector<uint8_t> same = {1, 1};
  for (int i = 0; i < 10; ++i) {
    distances.push_back(1.0 + 0.1 * i);
    same.push_back(0);
  }
  const BalancedResult result = best_balanced_accuracy(distances, same);
  EXPECT_NEAR(result.accuracy, 0.75, 1e-12);
  EXPECT_NEAR(result.threshold, 0.21, 1e-12);
}

TEST(VerificationTest, WhatDoesNotFitIsRefused) {
  const std::vector<double> distances(4, 1.0);
  const std::vector<uint8_t> same(4, 1);
  EXPECT_EQ(message_of<InvalidArgument>([&] { verify_pairs(distances, std::vector<uint8_t>(3, 1), 2); }),
            "[verify_pairs] expected as many distances as truths but got 4 and 3");
  EXPECT_EQ(message_of<InvalidArgument>([&] { verify_pairs(distances, same, 5); }),
            "[verify_pairs] expected from 2 to 4 folds but got 5");
  EXPECT_EQ(message_of<InvalidArgument>([&] { verify_pairs(distances, same, 1); }),
            "[verify_pairs] expected from 2 to 4 folds but got 1");
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { best_balanced_accuracy(distances, same); }),
      "[best_balanced_accuracy] expected pairs of the same person and of different ones but got 4 and 0");
}

}  // namespace
}  // namespace sinter::nn
