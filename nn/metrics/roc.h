// ROC: how many pairs of the same person are accepted at the price of how many of different people's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sinter::nn {

/// A point of the curve. Scores above `threshold` are accepted.
struct RocPoint {
  double threshold = 0.0;
  double far = 0.0;  ///< false accept rate: the share of the impostors that is accepted
  double tar = 0.0;  ///< true accept rate: the share of the genuine pairs that is accepted
};

/// The true accept rate at a false accept rate, by the exact rule.
struct TarAtFar {
  int64_t allowed = 0;     ///< k: so many impostors may be accepted
  double threshold = 0.0;  ///< the (k+1)-th highest impostor's score; scores above it are accepted
  double tar = 0.0;
};

/// Scores of genuine pairs (of one person) and of impostors (of different people), the higher the more alike,
/// as the cosine of two embeddings is. Scores are float32, as embeddings are: 4 bytes a pair, which are
/// sorted in place. NaN is lower than every number: such a pair is never accepted.
///
/// A false accept rate is given as "one in N", 10,000 for 1e-4, since how many impostors it allows is exact
/// only in integers.
class Roc {
 public:
  /// Throws InvalidArgument unless there is a pair of either kind.
  Roc(std::vector<float> genuine, std::vector<float> impostors);
  /// `same`: 1 where a pair is genuine. Throws InvalidArgument, too, unless there are as many as scores.
  Roc(std::span<const float> scores, std::span<const uint8_t> same);

  int64_t genuine() const { return static_cast<int64_t>(genuine_.size()); }
  int64_t impostors() const { return static_cast<int64_t>(impostors_.size()); }

  /// Of n impostors k = floor(n / one_in) may be accepted; the threshold is the (k+1)-th highest impostor's
  /// score. Where several have that score, fewer than k are accepted. With k = 0 the rate is that at which no
  /// impostor is accepted, which says little. At one_in 1 all are, at a threshold of -infinity. Throws
  /// InvalidArgument unless one_in >= 1.
  TarAtFar tar_at_far(int64_t one_in) const;

  /// InsightFace's rule: of the corners of scikit-learn's roc_curve (a point for each score that occurs, but
  /// those between two equal steps; and (0, 0)), the one whose false accept rate is nearest to 1 / one_in,
  /// the highest of several. It may lie far from the rate that was asked for.
  RocPoint nearest_to_far(int64_t one_in) const;

  /// The area under the curve: the share of all (genuine, impostor) where the genuine score is higher, ties
  /// counting half.
  double area() const;

  /// The curve from (0, 0) to (1, 1), the last one at a threshold of -infinity. Points on a straight line
  /// between others are left out, so that there are at most 2 * genuine() + 2 of them.
  std::vector<RocPoint> curve() const;

 private:
  struct Walk;

  std::vector<float> genuine_, impostors_;  // from the highest
};

}  // namespace sinter::nn
