// Images made of images of another size, where rows and columns are weighted apart from each other:
// enlarging, average pooling, and their gradients. What an axis is, and how threads of a GPU share the work.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>

namespace sinter::ops {

// Each axis has a fine and a coarse side. A pixel of the fine side belongs to at most two of the coarse side,
// which are neighbours: the two that it lies between when images are enlarged, the windows that hold it when
// they are pooled. Going to the fine side, a pixel is the weighted sum of those two; going to the coarse
// side, it is the weighted sum of all that belong to it. An axis is a type with
//   tap<C>(o)          the coarse pixels of fine pixel o, which do not fall as o grows
//   span(i)            the fine pixels that coarse pixel i has a part in
//   kEven, weight<C>(i)  whether all of them weigh the same, and then how much
//   kSingle            whether no pixel belongs to two

/// The two coarse pixels of a fine one: `first`, and the one after it. What weighs 0 has no part, and holds
/// nothing back: not even NaN; if `weight` is 0, so is `next_weight`.
template <class C>
struct AxisTap {
  int first;
  C weight, next_weight;

  /// The weight of coarse pixel i.
  SINTER_HOST_DEVICE C of(int i) const {
    if (i == first) return weight;
    return i == first + 1 ? next_weight : C{0};
  }
};

struct TapSpan {
  int begin, end;
};

/// The longest side for which products of two sides and their doubles fit an int.
inline constexpr int64_t kLongestTapSide = int64_t{1} << 14;

/// What a call looks like: `outer` images of `inner` elements to a pixel (NCHW is images of one channel).
struct TapExtents {
  int64_t outer, inner;
  int64_t source_rows, source_columns;
  int64_t rows, columns;  ///< of the result
};

/// How the result is cut into threads. A thread has `pack` channels beside each other of a column, or the
/// same element of `lanes` images, and walks down a strip of `steps` rows.
struct TapPlan {
  static constexpr int kThreads = 256;

  int64_t threads = 0;  ///< 0: not for these kernels, or nothing to do
  int64_t outer = 0;
  int rows = 0, columns = 0, inner = 0;
  int source_rows = 0, source_row = 0, source_image = 0, image = 0;  ///< elements
  int pack = 1, lanes = 1, steps = 1;
  cuda::FastDivide by_vectors, by_row, by_strips;
};

/// Where a thread works.
struct TapPlace {
  int64_t first_image;
  int last_lane, column, channel, first_row, last_row;

  SINTER_HOST_DEVICE TapPlace(const TapPlan& plan, uint32_t thread) {
    uint32_t at = 0, strip = 0, vector = 0;
    const uint32_t strips = plan.by_row.divide(thread, at);
    const uint32_t group = plan.by_strips.divide(strips, strip);
    column = static_cast<int>(plan.by_vectors.divide(at, vector));
    channel = static_cast<int>(vector) * plan.pack;
    first_image = int64_t{group} * plan.lanes;
    const int64_t left = plan.outer - first_image;
    last_lane = (left < plan.lanes ? static_cast<int>(left) : plan.lanes) - 1;
    first_row = static_cast<int>(strip) * plan.steps;
    last_row = first_row + plan.steps < plan.rows ? first_row + plan.steps : plan.rows;
  }
};

/// `widest`: elements of the widest access, which all pointers allow if `aligned`; `most_lanes`: images that
/// a thread takes together where it takes no packs. Strips are long, so that little is read twice, unless the
/// GPU would not be full.
inline TapPlan plan_taps(const TapExtents& extents, int64_t widest, int64_t most_lanes, bool aligned) {
  constexpr int64_t kLongestStrip = 16, kEnoughThreads = int64_t{1} << 18;
  TapPlan plan;
  for (const int64_t side : {extents.source_rows, extents.source_columns, extents.rows, extents.columns}) {
    if (side < 1 || side > kLongestTapSide) return plan;
  }
  if (extents.outer < 1 || extents.inner < 1 || extents.inner > INT32_MAX) return plan;
  const int64_t pack = aligned && extents.inner % widest == 0 ? widest : 1;
  // A last group of images that is not full costs little only among many.
  const int64_t lanes = pack == 1 && extents.outer >= 4 * most_lanes ? most_lanes : 1;
  const int64_t most = int64_t{INT32_MAX} / (lanes * extents.inner);
  if (extents.source_rows * extents.source_columns > most || extents.rows * extents.columns > most)
    return plan;
  const int64_t groups = (extents.outer + lanes - 1) / lanes, vectors = extents.inner / pack;
  const auto threads_at = [&](int64_t length) {
    return groups * ((extents.rows + length - 1) / length) * extents.columns * vectors;
  };
  int64_t steps = std::min(kLongestStrip, extents.rows);
  if (extents.outer > INT32_MAX || groups > INT32_MAX / (extents.columns * vectors)) return plan;
  while (steps > 1 && threads_at(steps) < kEnoughThreads) steps = (steps + 1) / 2;
  if (threads_at(steps) > INT32_MAX) return plan;
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  plan = {.threads = threads_at(steps),
          .outer = extents.outer,
          .rows = narrow(extents.rows),
          .columns = narrow(extents.columns),
          .inner = narrow(extents.inner),
          .source_rows = narrow(extents.source_rows),
          .source_row = narrow(extents.source_columns * extents.inner),
          .source_image = narrow(extents.source_rows * extents.source_columns * extents.inner),
          .image = narrow(extents.rows * extents.columns * extents.inner),
          .pack = narrow(pack),
          .lanes = narrow(lanes),
          .steps = narrow(steps),
          .by_vectors = cuda::FastDivide(static_cast<uint32_t>(vectors)),
          .by_row = cuda::FastDivide(static_cast<uint32_t>(extents.columns * vectors)),
          .by_strips = cuda::FastDivide(static_cast<uint32_t>((extents.rows + steps - 1) / steps))};
  return plan;
}

}  // namespace sinter::ops
