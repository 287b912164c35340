// Which pixels of the small image each pixel of the large one is made of, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/base/shape.h>
#include <sinter/ops/upsample/upsample.h>

namespace sinter::ops {

/// Output pixel o of an axis is (1 - share) * input[first] + share * input[second].
struct UpsampleTap {
  int64_t first;
  int64_t second;
  double share;

  /// The weight of input pixel i.
  SINTER_HOST_DEVICE double weight(int64_t i) const {
    return (first == i ? 1.0 - share : 0.0) + (second == i ? share : 0.0);
  }
};

/// One axis; positions are fractions of whole numbers, so that no rounding moves them.
struct UpsampleAxis {
  int64_t input;
  int64_t output;
  UpsampleMode mode;
  bool align_corners;

  SINTER_HOST_DEVICE UpsampleTap tap(int64_t o) const {
    if (mode == UpsampleMode::kNearest) {
      const int64_t i = o * input / output;
      return {i, i, 0.0};
    }
    int64_t numerator = 0, denominator = 1;
    if (!align_corners) {
      numerator = (2 * o + 1) * input - output;
      denominator = 2 * output;
    } else if (output > 1) {
      numerator = o * (input - 1);
      denominator = output - 1;
    }
    if (numerator < 0) numerator = 0;
    const int64_t first = numerator / denominator;
    const int64_t second = first + 1 < input ? first + 1 : first;
    return {first, second,
            static_cast<double>(numerator - first * denominator) / static_cast<double>(denominator)};
  }
  /// The least o whose tap has first >= i, or `output`: first never falls as o grows.
  SINTER_HOST_DEVICE int64_t begin_of(int64_t i) const {
    int64_t low = 0, high = output;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (tap(middle).first >= i) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

/// A call of either op: images as (outer, height, width, inner) on both sides.
struct UpsampleProblem {
  /// `small` and `large` are the shapes of x (or dx) and y (or dy).
  UpsampleProblem(const Shape& small, const Shape& large, const UpsampleAttributes& options) {
    const bool is_first = options.layout == Layout::kNCHW;
    const int axis = is_first ? 2 : 1;
    outer = is_first ? small.count(0, 2) : small[0];
    inner = is_first ? 1 : small[3];
    rows = {small[axis], large[axis], options.mode, options.align_corners};
    columns = {small[axis + 1], large[axis + 1], options.mode, options.align_corners};
  }

  int64_t outer, inner;
  UpsampleAxis rows, columns;

  /// What is the same for all images, worked out once: the taps of all output rows and columns, and where
  /// the outputs of each input row and column begin (begin_of, for 0 ... input).
  size_t table_bytes() const {
    return static_cast<size_t>(rows.output + columns.output) * sizeof(UpsampleTap) +
           static_cast<size_t>(rows.input + columns.input + 2) * sizeof(int64_t);
  }
};

struct UpsampleTables {
  SINTER_HOST_DEVICE UpsampleTables(const UpsampleProblem& problem, void* memory)
      : row_taps(static_cast<UpsampleTap*>(memory)),
        column_taps(row_taps + problem.rows.output),
        row_begins(reinterpret_cast<int64_t*>(column_taps + problem.columns.output)),
        column_begins(row_begins + problem.rows.input + 1) {}

  UpsampleTap* row_taps;
  UpsampleTap* column_taps;
  int64_t* row_begins;
  int64_t* column_begins;
};

/// (1 - share) * a + share * b, where a share of 0 keeps what b holds out.
template <class C>
SINTER_HOST_DEVICE C upsample_mix(C a, C b, C share) {
  return share == C{0} ? a : (C{1} - share) * a + share * b;
}

/// Element k of output pixel (row, column) of an image; `load(i)` gives element i of it as a C.
template <class C, class Load>
SINTER_HOST_DEVICE C upsample_value(const Load& load, const UpsampleProblem& problem, const UpsampleTap& row,
                                    const UpsampleTap& column, int64_t k) {
  const auto at = [&](int64_t r, int64_t c) {
    return load((r * problem.columns.input + c) * problem.inner + k);
  };
  const C share = static_cast<C>(column.share);
  const C above = upsample_mix(at(row.first, column.first), at(row.first, column.second), share);
  if (row.share == 0.0) return above;
  const C below = upsample_mix(at(row.second, column.first), at(row.second, column.second), share);
  return upsample_mix(above, below, static_cast<C>(row.share));
}

/// Element k of the gradient of input pixel (i, j): what the outputs around it give back; `load(i)` gives
/// element i of the image of dy.
template <class C, class Load>
SINTER_HOST_DEVICE C upsample_gradient(const Load& load, const UpsampleProblem& problem,
                                       const UpsampleTables& tables, int64_t i, int64_t j, int64_t k) {
  C sum = 0;
  const int64_t row_end = tables.row_begins[i + 1], column_end = tables.column_begins[j + 1];
  for (int64_t o = tables.row_begins[i > 0 ? i - 1 : 0]; o < row_end; ++o) {
    const double row_weight = tables.row_taps[o].weight(i);
    if (row_weight == 0.0) continue;
    C row_sum = 0;
    for (int64_t p = tables.column_begins[j > 0 ? j - 1 : 0]; p < column_end; ++p) {
      const double weight = tables.column_taps[p].weight(j);
      if (weight == 0.0) continue;
      row_sum += static_cast<C>(weight) * load((o * problem.columns.output + p) * problem.inner + k);
    }
    sum += static_cast<C>(row_weight) * row_sum;
  }
  return sum;
}

}  // namespace sinter::ops
