// Helpers of max pooling on the CPU: image rows laid out so that every tap of a window reads consecutive
// elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/common/images/slots_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>

namespace sinter::ops {

/// The elements of a window along one axis that can lie inside the image.
inline int64_t inner_kernel(const PoolAxis& axis) {
  return std::min(axis.kernel, axis.extent);
}

/// True for the kernels that work on rows of planes. They write out every column of a window, so that windows
/// much wider than the image are left to those that work on pixels, and windows with gaps are too.
inline bool works_on_rows(const PoolGeometry& geometry, Layout layout) {
  return layout == Layout::kNCHW && geometry.x.kernel <= 2 * geometry.x.extent + 64 && !geometry.is_dilated();
}

/// What the kernels that work on pixels and their channels see: a plane of NCHW is an image of one channel.
inline PoolGeometry pixels_of(PoolGeometry geometry, Layout layout) {
  if (layout == Layout::kNCHW) {
    geometry.batch *= geometry.channels;
    geometry.channels = 1;
  }
  return geometry;
}

/// The largest so far of `count` windows side by side (or of one pixel's channels), and their places there.
template <class C>
struct PoolBest {
  C* values;
  int32_t* places;

  /// Takes in the element that each of them has at `place`.
  void take(const C* x, int32_t place, int64_t count) const {
    C* const best = values;
    int32_t* const best_places = places;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const bool takes = pool_takes(x[i], best[i]);
      best[i] = takes ? x[i] : best[i];
      best_places[i] = takes ? place : best_places[i];
    }
  }
};

/// The rows of one image plane that a window covers, in compute type C. Columns are split by their remainder
/// modulo the stride, and padding is filled in, so that tap k of the windows 0, 1, 2, ... reads consecutive
/// elements.
template <class C>
class PoolRows {
 public:
  static int64_t scratch(const PoolAxis& y, const PoolAxis& x) {
    return inner_kernel(y) * phases(x) * phase_width(x);
  }

  PoolRows(const PoolAxis& y, const PoolAxis& x, C padding, C* memory)
      : y_(y), x_(x), padding_(padding), memory_(memory) {}

  /// Makes the rows [begin, end) of a plane available; `begin` and `end` never decrease. Call restart() for a
  /// new plane.
  template <class T>
  void load(const T* plane, int64_t begin, int64_t end) {
    load(plane, begin, end, [](C value) { return value; });
  }
  /// The same of map(element).
  template <class T, class Map>
  void load(const T* plane, int64_t begin, int64_t end, const Map& map) {
    for (int64_t row = std::max(next_, begin); row < end; ++row) {
      split(plane + row * x_.extent, slot(row), map);
    }
    next_ = std::max(next_, end);
  }
  void restart() { next_ = 0; }

  /// Element o is what window o sees at column `tap` in image row `row`.
  const C* tap(int64_t row, int64_t tap) const {
    return slot(row) + tap % x_.stride * phase_width(x_) + tap / x_.stride;
  }

 private:
  static int64_t phases(const PoolAxis& x) { return std::min(x.stride, x.kernel); }
  static int64_t phase_width(const PoolAxis& x) { return x.out + (x.kernel - 1) / x.stride; }
  C* slot(int64_t row) const { return memory_ + row % inner_kernel(y_) * phases(x_) * phase_width(x_); }

  template <class T, class Map>
  void split(const T* row, C* to, const Map& map) const {
    const int64_t width = phase_width(x_), stride = x_.stride;
    for (int64_t phase = 0; phase < phases(x_); ++phase, to += width) {
      const int64_t start = phase - x_.padding;  // the column of element 0
      const int64_t first = std::min(start < 0 ? (-start + stride - 1) / stride : 0, width);
      const int64_t last =
          std::clamp(start < x_.extent ? (x_.extent - start + stride - 1) / stride : 0, first, width);
      std::fill(to, to + first, padding_);
      if (stride == 1) {
        for (int64_t i = first; i < last; ++i) to[i] = map(static_cast<C>(row[start + i]));
      } else if (stride == 2) {
        for (int64_t i = first; i < last; ++i) to[i] = map(static_cast<C>(row[start + 2 * i]));
      } else {
        for (int64_t i = first; i < last; ++i) to[i] = map(static_cast<C>(row[start + stride * i]));
      }
      std::fill(to + last, to + width, padding_);
    }
  }

  PoolAxis y_, x_;
  C padding_;
  C* memory_;
  int64_t next_ = 0;  // rows before this one have been loaded
};

}  // namespace sinter::ops
