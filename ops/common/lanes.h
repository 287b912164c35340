// Reductions over contiguous rows in a fixed order that vectorises: sixteen running lanes, then a binary
// tree.
#pragma once

#include <cstdint>

namespace sinter::ops {

inline constexpr int kLanes = 16;

namespace detail {

/// Folds the lanes by halves, and takes in the terms [begin, end), fewer than kWidth, as soon as there are no
/// more lanes than that.
template <int kWidth, class C, class F>
C fold_lane_sums(C* lanes, int64_t begin, int64_t end, F term) {
  if constexpr (kWidth > 1) {
    constexpr int kHalf = kWidth / 2;
    for (int lane = 0; lane < kHalf; ++lane) lanes[lane] += lanes[lane + kHalf];
    if (end - begin >= kHalf) {
      for (int lane = 0; lane < kHalf; ++lane) lanes[lane] += term(begin + lane);
      begin += kHalf;
    }
    return fold_lane_sums<kHalf>(lanes, begin, end, term);
  }
  return lanes[0];
}

}  // namespace detail

/// The sum of term(0), ..., term(count - 1), of type C. The order of additions depends on `count` only.
template <class C, class F>
C lane_sum(int64_t count, F term) {
  C lanes[kLanes] = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  return detail::fold_lane_sums<kLanes>(lanes, whole, count, term);
}

}  // namespace sinter::ops
