// How a reduction is cut into blocks of threads for a GPU. Host code without devices, so that a unit test can
// use it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {

inline constexpr int kReduceThreads = 256;  // of a block

/// A block reduces `output_lanes` outputs, each with `term_lanes` threads: thread t of an output takes the
/// terms t, t + term_lanes, ... of one segment. With one column the terms lie side by side, and so do the
/// threads of one output; else it is the outputs. Everything is counted in packs of neighbouring elements: of
/// terms if there is one column, else of outputs. All of it follows from the shape, so results do not depend
/// on the GPU.
struct ReduceSchedule {
  ReduceSchedule(const ReducePlan& plan, int pack_size)
      : pack(pack_size),
        terms_adjoin(plan.columns == 1),
        output_units(terms_adjoin ? plan.outputs() : plan.outputs() / pack),
        term_units(terms_adjoin ? plan.terms() / pack : plan.terms()) {
    if (terms_adjoin) {
      const auto wanted =
          static_cast<int>(power_of_two_from((term_units + kTermsPerThread - 1) / kTermsPerThread));
      const auto least = static_cast<int>(std::min<int64_t>(power_of_two_from(term_units), 32));
      term_lanes = std::max(wanted, least);
    } else {
      const int64_t columns = std::min<int64_t>(power_of_two_from(plan.columns / pack), 32);
      term_lanes = static_cast<int>(std::min(kReduceThreads / columns, power_of_two_from(term_units)));
    }
    output_lanes = kReduceThreads / term_lanes;
    output_blocks = (output_units + output_lanes - 1) / output_lanes;
    // Too few blocks to fill a GPU: the terms are cut as well, and a second kernel combines the segments.
    const int64_t most =
        (term_units + int64_t{term_lanes} * kLeastTerms - 1) / (int64_t{term_lanes} * kLeastTerms);
    segments =
        std::clamp<int64_t>(kBlocks / std::max<int64_t>(output_blocks, 1), 1, std::max<int64_t>(most, 1));
    segment_units = (term_units + segments - 1) / segments;
    segment_units = (segment_units + term_lanes - 1) / term_lanes * term_lanes;
    segments = (term_units + segment_units - 1) / segment_units;
  }

  /// Partial results that the second kernel reads.
  int64_t partials() const { return segments == 1 ? 0 : segments * output_units * (terms_adjoin ? 1 : pack); }

  int pack;
  bool terms_adjoin;
  int64_t output_units, term_units;
  int term_lanes = 1, output_lanes = 1;  // powers of two, kReduceThreads together
  int64_t output_blocks = 1;
  int64_t segments = 1, segment_units = 1;

 private:
  static constexpr int64_t kBlocks = 1024;       // enough for every GPU of today
  static constexpr int64_t kTermsPerThread = 4;  // below, more threads per output do not pay
  static constexpr int64_t kLeastTerms = 16;     // of a thread, before the terms are cut into segments

  /// The smallest power of two >= n, at most kReduceThreads.
  static int64_t power_of_two_from(int64_t n) {
    const auto limited = static_cast<uint64_t>(std::clamp<int64_t>(n, 1, kReduceThreads));
    return static_cast<int64_t>(std::bit_ceil(limited));
  }
};

/// Whether packs of `pack` elements never straddle two rows or outputs: every stride and extent that matters
/// is a multiple of it.
inline bool packs_fit(const ReducePlan& plan, int pack) {
  return (plan.columns == 1 ? plan.rows : plan.columns) % pack == 0;
}

}  // namespace sinter::ops
