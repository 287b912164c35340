// What the planners of tiles and of woven tiles share: even steps, and a permutation's axes by role.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <sinter/ops/permute/plan/permute_plan.h>

namespace sinter::ops::tiling {

/// ceil(log2(count)).
inline int log2_ceil(int64_t count) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1)));
}

inline int64_t divide_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

inline int64_t round_up(int64_t count, int64_t unit) {
  return divide_up(count, unit) * unit;
}

/// Steps of about `target` that divide `count` evenly.
inline int64_t even_step(int64_t count, int64_t target) {
  return divide_up(count, std::max<int64_t>(1, (2 * count + target) / (2 * target)));
}

/// Steps of at most `most` that divide `count` evenly.
inline int64_t even_step_below(int64_t count, int64_t most) {
  return divide_up(count, divide_up(count, std::max<int64_t>(1, most)));
}

/// The plan's axes by role: rows are the last axes of the output, columns those of the input, the others are
/// outer.
struct Sides {
  const PermutePlan& plan;
  int first_row, first_column;  ///< from here on axes of the output are rows, axes of the input columns
  int64_t rows, columns;        ///< their extents

  explicit Sides(const PermutePlan& permute_plan)
      : plan(permute_plan), first_row(plan.rank - 1), first_column(plan.rank - 1) {
    rows = plan.extent(plan.input_axis(first_row));
    columns = plan.extent(first_column);
  }

  /// Whether rows or columns can take in the axis before them: the other side has not taken it, and their
  /// indices stay below 2^31.
  bool more_rows() const {
    return first_row > 0 && plan.input_axis(first_row - 1) < first_column &&
           rows * plan.extent(plan.input_axis(first_row - 1)) <= INT32_MAX;
  }
  bool more_columns() const {
    return first_column > 0 && plan.output_axis(first_column - 1) < first_row &&
           columns * plan.extent(first_column - 1) <= INT32_MAX;
  }

  /// Takes axes into sides that are short, so that runs fill the memory's sectors, then into the shorter one
  /// until both make `least_elements`.
  void extend(int64_t element_bytes, int64_t least_elements) {
    constexpr int64_t kEnoughBytes = 128;
    const auto is_short = [&](int64_t count) { return count * element_bytes < kEnoughBytes; };
    while (is_short(rows) && more_rows()) take_rows();
    while (is_short(columns) && more_columns()) take_columns();
    // Two runs of the output that do not begin with packs share a sector, which is written twice.
    constexpr int64_t kEnoughOddBytes = 512;
    const int64_t run = rows * element_bytes;
    if (run % 16 != 0 && run < kEnoughOddBytes && more_rows()) take_rows();
    while (!reaches(least_elements) && (more_rows() || more_columns())) {
      if (more_rows() && (rows <= columns || !more_columns())) {
        take_rows();
      } else {
        take_columns();
      }
    }
  }

  /// Whether there are so many elements; more than fit in 64 bits there may be.
  bool reaches(int64_t elements) const { return rows >= divide_up(elements, columns); }

 private:
  void take_rows() { rows *= plan.extent(plan.input_axis(--first_row)); }
  void take_columns() { columns *= plan.extent(--first_column); }
};

}  // namespace sinter::ops::tiling
