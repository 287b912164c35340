// Verification: how well a distance tells whether two pictures show the same person.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sinter::nn {

/// The cosine of two vectors of length 1 at a squared L2 distance: 1.348 of one is 0.326 of the other.
constexpr double cosine_of(double squared_distance) {
  return 1.0 - squared_distance / 2.0;
}

/// Pairs are taken for the same person where their distance is below a threshold.
struct VerificationFold {
  double accuracy = 0.0;   ///< share of the fold's pairs that are told right
  double threshold = 0.0;  ///< the best on the other folds
};

struct VerificationResult {
  double accuracy = 0.0;   ///< mean over the folds of the share of pairs that are told right
  double std = 0.0;        ///< standard deviation over the folds
  double threshold = 0.0;  ///< mean over the folds of the best threshold on the other folds
  std::vector<VerificationFold> folds;
};

/// The protocol of LFW: the pairs are cut into `folds` runs of pairs that follow each other (the first ones
/// are longer by one where they do not divide), and each is judged by the threshold in {0, 0.01, ..., 3.99}
/// that has the highest accuracy on all the others, the lowest of several. `distances`: squared L2 between
/// embeddings of length 1, in [0, 4]; `same`: 1 where both are of one person. NaN counts as far apart. Throws
/// InvalidArgument unless there are as many distances as truths, and folds from 2 to their number.
VerificationResult verify_pairs(std::span<const double> distances, std::span<const uint8_t> same,
                                int folds = 10);

struct BalancedResult {
  double accuracy = 0.0;   ///< mean of the shares of "same" and of "different" pairs that are told right
  double threshold = 0.0;  ///< at which it is best, of {0, 0.01, ..., 4}
};

/// The best accuracy at one threshold for all pairs, where both kinds of pairs count the same however many
/// there are. An upper bound of sorts: the threshold is chosen on the pairs that it is judged by. Throws
/// InvalidArgument unless there are as many distances as truths, and pairs of both kinds.
BalancedResult best_balanced_accuracy(std::span<const double> distances, std::span<const uint8_t> same);

}  // namespace sinter::nn
