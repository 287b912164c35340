// Helpers of max pooling on the CPU: image rows laid out so that every tap of a window reads consecutive
// elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <sinter/ops/common/cpu/block_cpu.h>
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

/// Elements of the widest vectors. Loops over rows end with a whole one: what lies behind a row is computed,
/// and not stored.
inline constexpr int64_t kPoolVector = 16;

inline int64_t whole_vectors(int64_t elements) {
  return (elements + kPoolVector - 1) / kPoolVector * kPoolVector;
}

/// to[i] = from[i] for the places of windows. A loop over elements of both sizes fills vectors with the
/// smaller, and leaves rows of fewer to single ones.
template <class From, class To>
void convert_places(const From* from, To* to, int64_t count) {
  if (sizeof(From) == sizeof(To) || count < kPoolVector) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
    return;
  }
  // In two steps: compilers convert to twice or half the size by vectors.
  using FromVector [[gnu::vector_size(kPoolVector * sizeof(From))]] = From;
  using Halfway [[gnu::vector_size(kPoolVector * sizeof(uint16_t))]] = uint16_t;
  using ToVector [[gnu::vector_size(kPoolVector * sizeof(To))]] = To;
  for (int64_t i = 0; i < count; i += kPoolVector) {
    const int64_t first = std::min(i, count - kPoolVector);
    FromVector loaded;
    std::memcpy(&loaded, from + first, sizeof(loaded));
    const ToVector converted = __builtin_convertvector(__builtin_convertvector(loaded, Halfway), ToVector);
    std::memcpy(to + first, &converted, sizeof(converted));
  }
}

/// Calls body(first, count) for the channels of a pixel in blocks of whole vectors. The last goes back over
/// channels that the one before it has done, rather than to end with single ones.
inline constexpr int64_t kChannelBlock = 64;

template <class Body>
[[gnu::always_inline]] inline void for_channel_blocks(int64_t channels, Body body) {
  for (int64_t first = 0; first < channels;) {
    const int64_t whole = (channels - first) / kPoolVector * kPoolVector;
    if (whole == 0 && channels >= kPoolVector) first = channels - kPoolVector;
    const int64_t count =
        std::min(whole > 0 ? std::min(whole, kChannelBlock) : kPoolVector, channels - first);
    body(first, count);
    first += count;
  }
}

/// Calls function.operator()<T, Index>().
template <class F>
void dispatch_max_pool(DType dtype, DType index, const char* tag, F function) {
  dispatch_float(dtype, tag, [&]<class T> {
    if (index == DType::kUInt8) {
      function.template operator()<T, uint8_t>();
    } else {
      function.template operator()<T, int32_t>();
    }
  });
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
    SINTER_IVDEP
    for (int64_t i = 0; i < count; ++i) {
      const bool takes = pool_takes(x[i], best[i]);
      best[i] = takes ? x[i] : best[i];
      best_places[i] = takes ? place : best_places[i];
    }
  }
};

/// The rows of one image that a window covers, in compute type C; pixels have `depth` elements. Columns are
/// split by their remainder modulo the stride, and padding is filled in, so that tap k of the windows 0, 1,
/// 2,
/// ... reads consecutive elements.
template <class C>
class PoolRows {
 public:
  static int64_t scratch(const PoolAxis& y, const PoolAxis& x, int64_t depth = 1) {
    return inner_kernel(y) * phases(x) * phase_width(x) * depth;
  }

  PoolRows(const PoolAxis& y, const PoolAxis& x, C padding, C* memory, int64_t depth = 1)
      : y_(y), x_(x), padding_(padding), memory_(memory), depth_(depth) {}

  /// Makes the rows [begin, end) of an image available; `begin` and `end` never decrease. Call restart() for
  /// a new image.
  template <class T>
  void load(const T* image, int64_t begin, int64_t end) {
    for (int64_t row = std::max(next_, begin); row < end; ++row) {
      split(image + row * x_.extent * depth_, slot(row));
    }
    next_ = std::max(next_, end);
  }
  void restart() { next_ = 0; }

  /// Pixel o is what window o sees at column `tap` in image row `row`.
  const C* tap(int64_t row, int64_t tap) const {
    return slot(row) + (tap % x_.stride * phase_width(x_) + tap / x_.stride) * depth_;
  }

 private:
  static int64_t phases(const PoolAxis& x) { return std::min(x.stride, x.kernel); }
  static int64_t phase_width(const PoolAxis& x) { return x.out + (x.kernel - 1) / x.stride; }
  C* slot(int64_t row) const {
    return memory_ + row % inner_kernel(y_) * phases(x_) * phase_width(x_) * depth_;
  }

  template <class T>
  void split(const T* row, C* to) const {
    const int64_t width = phase_width(x_), stride = x_.stride;
    for (int64_t phase = 0; phase < phases(x_); ++phase, to += width * depth_) {
      const int64_t start = phase - x_.padding;  // the column of pixel 0
      const int64_t first = std::min(start < 0 ? (-start + stride - 1) / stride : 0, width);
      const int64_t last =
          std::clamp(start < x_.extent ? (x_.extent - start + stride - 1) / stride : 0, first, width);
      const T* from = row + start * depth_;
      std::fill(to, to + first * depth_, padding_);
      if (stride == 1) {
        for (int64_t i = first * depth_; i < last * depth_; ++i) to[i] = static_cast<C>(from[i]);
      } else if (depth_ != 1) {
        for (int64_t i = first; i < last; ++i) {
          for (int64_t k = 0; k < depth_; ++k) {
            to[i * depth_ + k] = static_cast<C>(from[stride * i * depth_ + k]);
          }
        }
      } else if (stride == 2) {
        for (int64_t i = first; i < last; ++i) to[i] = static_cast<C>(from[2 * i]);
      } else {
        for (int64_t i = first; i < last; ++i) to[i] = static_cast<C>(from[stride * i]);
      }
      std::fill(to + last * depth_, to + width * depth_, padding_);
    }
  }

  PoolAxis y_, x_;
  C padding_;
  C* memory_;
  int64_t depth_;
  int64_t next_ = 0;  // rows before this one have been loaded
};

}  // namespace sinter::ops
