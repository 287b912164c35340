// Reductions over contiguous rows in a fixed order that vectorises: sixteen running lanes, then a binary
// tree.
#pragma once

#include <cstdint>

namespace sinter::ops {

inline constexpr int kLanes = 16;

/// The sum of term(0), ..., term(count - 1), of type C. The order of additions depends on `count` only.
template <class C, class F>
C lane_sum(int64_t count, F term) {
  C lanes[kLanes] = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += term(i);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace sinter::ops
