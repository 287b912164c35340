#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/metrics/verification.h>

namespace sinter::nn {
namespace {

constexpr size_t kThresholds = 400;  // 0, 0.01, ..., 3.99
constexpr double kStep = 0.01;

double threshold_at(size_t index) {
  return static_cast<double>(index) * kStep;
}

/// The index of the first threshold above a distance, at which the pair begins to count as the same; `last`
/// for none. Decided by the very comparison that the definition has, not by a division.
size_t first_above(double distance, size_t last) {
  if (!(distance < threshold_at(last))) return last + 1;
  auto index = static_cast<size_t>(std::max(0.0, distance / kStep));
  while (index > 0 && distance < threshold_at(index - 1)) --index;
  while (!(distance < threshold_at(index))) ++index;
  return index;
}

using Counts = std::vector<int64_t>;  // by threshold

/// How many of the pairs [begin, end) are told right at each of `count` thresholds.
Counts count_right(std::span<const double> distances, std::span<const uint8_t> same, size_t begin, size_t end,
                   size_t count) {
  Counts change(count + 1, 0);
  for (size_t i = begin; i < end; ++i) {
    const size_t above = std::min(first_above(distances[i], count - 1), count);
    if (same[i] != 0) {
      ++change[above];
    } else {
      ++change[0];
      --change[above];
    }
  }
  Counts right(count);
  int64_t sum = 0;
  for (size_t t = 0; t < count; ++t) right[t] = sum += change[t];
  return right;
}

void check_sizes(const char* tag, std::span<const double> distances, std::span<const uint8_t> same) {
  SINTER_CHECK(distances.size() == same.size(), "[{}] expected as many distances as truths but got {} and {}",
               tag, distances.size(), same.size());
}

}  // namespace

VerificationResult verify_pairs(std::span<const double> distances, std::span<const uint8_t> same, int folds) {
  check_sizes("verify_pairs", distances, same);
  const size_t pairs = same.size(), parts = static_cast<size_t>(std::max(folds, 0));
  SINTER_CHECK(parts >= 2 && parts <= pairs, "[verify_pairs] expected from 2 to {} folds but got {}", pairs,
               folds);
  std::vector<Counts> right;
  std::vector<size_t> sizes;
  Counts all(kThresholds, 0);
  for (size_t fold = 0, begin = 0; fold < parts; ++fold) {
    sizes.push_back(pairs / parts + (fold < pairs % parts ? 1 : 0));
    right.push_back(count_right(distances, same, begin, begin + sizes.back(), kThresholds));
    begin += sizes.back();
    for (size_t t = 0; t < kThresholds; ++t) all[t] += right.back()[t];
  }
  VerificationResult result;
  double sum = 0.0, squares = 0.0, thresholds = 0.0;
  for (size_t fold = 0; fold < parts; ++fold) {
    size_t best = 0;
    for (size_t t = 1; t < kThresholds; ++t) {
      if (all[t] - right[fold][t] > all[best] - right[fold][best]) best = t;
    }
    const double accuracy = static_cast<double>(right[fold][best]) / static_cast<double>(sizes[fold]);
    sum += accuracy;
    squares += accuracy * accuracy;
    thresholds += threshold_at(best);
    result.folds.push_back({accuracy, threshold_at(best)});
  }
  const auto n = static_cast<double>(parts);
  const double mean = sum / n;
  result.accuracy = mean;
  result.std = std::sqrt(std::max(0.0, squares / n - mean * mean));
  result.threshold = thresholds / n;
  return result;
}

BalancedResult best_balanced_accuracy(std::span<const double> distances, std::span<const uint8_t> same) {
  check_sizes("best_balanced_accuracy", distances, same);
  std::array<std::vector<double>, 2> kinds;
  for (size_t i = 0; i < same.size(); ++i) kinds[same[i] != 0 ? 1 : 0].push_back(distances[i]);
  SINTER_CHECK(
      !kinds[0].empty() && !kinds[1].empty(),
      "[best_balanced_accuracy] expected pairs of the same person and of different ones but got {} and {}",
      kinds[1].size(), kinds[0].size());
  constexpr size_t kAll = kThresholds + 1;
  std::array<Counts, 2> right;
  for (size_t kind = 0; kind < 2; ++kind) {
    const std::vector<uint8_t> truths(kinds[kind].size(), static_cast<uint8_t>(kind));
    right[kind] = count_right(kinds[kind], truths, 0, truths.size(), kAll);
  }
  BalancedResult best;
  for (size_t t = 0; t < kAll; ++t) {
    double accuracy = 0.0;
    for (size_t kind = 0; kind < 2; ++kind)
      accuracy += static_cast<double>(right[kind][t]) / static_cast<double>(kinds[kind].size()) / 2.0;
    if (accuracy > best.accuracy) best = {accuracy, threshold_at(t)};
  }
  return best;
}

}  // namespace sinter::nn
