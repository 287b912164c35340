// How a GPU cuts products of one vector with very few columns. Pure arithmetic, without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

/// Sums along very few columns that fill no units of 16 bytes: the fewest rows that together do are a fold,
/// whose elements a lane multiplies, every one in a column that is known when the kernel is compiled. A warp
/// copies chunks of folds as they lie to a ring of its own; a fold has an odd number of units, so eight
/// lanes' lie in different banks. Rows in front of the first that begins with a unit, and behind the last
/// fold, are added singly. A second kernel adds the parts.
struct NarrowColumnPlan {
  static constexpr int kThreads = 256;  ///< of a block

  int64_t parts = 1;  ///< of a matrix, for a block each, whose warps take every so-manieth chunk

  /// `pack` elements to a unit.
  static constexpr int most_columns(int pack) { return pack == 8 ? 15 : 7; }
  static constexpr int fold(int columns, int pack) { return pack / std::gcd(columns, pack); }  ///< rows
  static constexpr int units(int columns, int pack) {
    return columns / std::gcd(columns, pack);
  }  ///< of a fold
  /// Folds of a lane in a chunk, and chunks of a warp in flight or in use: some KB.
  static constexpr int times(int columns, int pack) { return std::max(6 / units(columns, pack), 1); }
  static constexpr int stages(int columns, int pack) { return units(columns, pack) <= 7 ? 3 : 2; }

  template <int columns, int pack>
  struct Cut {
    static constexpr int kFold = fold(columns, pack), kUnits = units(columns, pack),
                         kTimes = times(columns, pack), kFolds = 32 * kTimes, kStages = stages(columns, pack),
                         kStageBytes = 16 * kUnits * kFolds;
  };
};

/// `rows` of each of `batch` matrices, at least 1.
inline NarrowColumnPlan plan_narrow_columns(int64_t batch, int64_t rows, int columns, int pack) {
  const int64_t chunk_rows =
      int64_t{32} * NarrowColumnPlan::times(columns, pack) * NarrowColumnPlan::fold(columns, pack);
  const int64_t block_rows = NarrowColumnPlan::kThreads / 32 * chunk_rows;
  // Of 15 columns, shared memory holds one block of a processor.
  const int64_t blocks = detail::kProcessors * (NarrowColumnPlan::units(columns, pack) > 13 ? 1 : 2);
  return {.parts = std::clamp<int64_t>(blocks / batch, 1, std::max<int64_t>(rows / block_rows, 1))};
}

}  // namespace sinter::ops
