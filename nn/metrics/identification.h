// Identification: who of a gallery a probe is, and whether it is of anyone there (1:N).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sinter/nn/metrics/templates.h>

namespace sinter::nn {

/// A template, by its row, and whose it is.
struct Enrolled {
  size_t row = 0;
  int64_t subject = 0;
};

/// The false negative identification rate where one in `one_in` searches for strangers may find someone.
struct FnirAtFpir {
  int64_t one_in = 0;
  int64_t allowed = 0;     ///< k = floor(non-mated probes / one_in)
  double threshold = 0.0;  ///< the (k+1)-th highest of the non-mated probes' best scores
  double fnir = 0.0;       ///< share of mated probes whose best is not their mate, or not above the threshold
};

struct IdentificationResult {
  int64_t mated = 0;      ///< probes whose subject is in the gallery
  int64_t non_mated = 0;  ///< the others
  /// For each rank that was asked for, the share of the mated probes whose mate is among so many.
  std::vector<double> found;
  std::vector<FnirAtFpir> open_set;  ///< empty without a non-mated probe
};

/// Compares each probe with all of a gallery. A mate's rank is 1 and the number of other subjects' templates
/// that score as high or higher, so ties are against it; of several templates of the subject the best counts.
/// Each of `one_in` is an FPIR, 1,000 for .001; thresholds as Roc::tar_at_far has them. Comparisons are
/// spread over threads, and need memory for one number a probe. Throws InvalidArgument for an empty gallery,
/// rows that are not there, one_in below 1 or ranks below 1, or if no probe is mated.
IdentificationResult identify(const Templates& templates, std::span<const Enrolled> gallery,
                              std::span<const Enrolled> probes, std::span<const int64_t> ranks,
                              std::span<const int64_t> one_in);

}  // namespace sinter::nn
