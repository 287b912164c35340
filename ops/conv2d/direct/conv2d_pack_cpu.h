// Moves image channels between tensors and the direct kernels' vectors: into packed bands, and out of
// [pixel][channel] scratch. T is the tensor's type, C the type that computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <sinter/core/op/attributes.h>
#include <sinter/ops/common/cpu/vector_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_direct_plan.h>

namespace sinter::ops {

/// Distances in an image tensor, in elements.
struct ImageStrides {
  int64_t channel = 0, pixel = 0, image = 0;

  ImageStrides(Layout layout, int64_t channels, int64_t pixels)
      : channel(layout == Layout::kNCHW ? pixels : 1),
        pixel(layout == Layout::kNCHW ? 1 : channels),
        image(channels * pixels) {}
};

/// `count` <= kLanes<C> neighbours as a vector, zeros behind them.
template <class C, class T>
inline Vector<C> load_converted(const T* from, int64_t count) {
  if constexpr (std::is_same_v<T, C>) {
    if (count == kLanes<C>) return load_vector(from);
  }
  alignas(kVectorBytes) C lanes[kLanes<C>] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = static_cast<C>(from[i]);
  return load_vector(lanes);
}

template <class C, class T>
inline void store_converted(T* to, Vector<C> value, int64_t count) {
  if constexpr (std::is_same_v<T, C>) {
    if (count == kLanes<C>) return store_vector(to, value);
  }
  alignas(kVectorBytes) C lanes[kLanes<C>];
  store_vector(lanes, value);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(lanes[i]);
}

namespace detail {

/// Zeroes what one row of a block has outside the image; true if the row has pixels to copy.
template <class C>
bool pack_padding(const PackedBand& band, int64_t row, C* to) {
  if (!band.needs_row(row)) return false;
  if (row < 0 || row >= band.rows().source) {
    std::fill_n(to, band.row_elements(), C{0});
    return false;
  }
  for (int64_t element : band.padding_elements()) store_vector(to + element, Vector<C>{});
  return true;
}

/// NHWC: a pixel's channels are neighbours. Reads whole vectors where they lie inside the image, which ends
/// at `end`.
template <class C, class T>
void pack_adjacent(const PackedBand& band, const T* image, const T* end, const ImageStrides& strides,
                   int64_t channels, C* to) {
  const int64_t width = band.columns().source;
  for (int64_t r = 0; r < band.row_count(); ++r, to += band.row_elements()) {
    const int64_t row = band.first_row() + r;
    if (!pack_padding(band, row, to)) continue;
    const T* from = image + row * width * strides.pixel;
    for (int64_t w = 0; w < width; ++w, from += strides.pixel) {
      const int64_t element = band.column_element(w);
      if (element < 0) continue;
      const bool whole = channels < kLanes<C> && end - from >= kLanes<C>;
      store_vector(to + element, whole ? keep_lanes<C>(load_converted<C>(from, kLanes<C>), channels)
                                       : load_converted<C>(from, channels));
    }
  }
}

/// NCHW: squares of channels x pixels are transposed in registers; pixels count on from row to row.
template <class C, class T>
void pack_planes(const PackedBand& band, const T* image, const ImageStrides& strides, int64_t channels,
                 C* to) {
  const int64_t width = band.columns().source;
  for (int64_t r = 0; r < band.row_count(); ++r)
    pack_padding(band, band.first_row() + r, to + r * band.row_elements());
  const int64_t row_begin = std::max<int64_t>(band.first_row(), 0);
  const int64_t row_end = std::min(band.first_row() + band.row_count(), band.rows().source);
  int64_t row = row_begin, column = 0;
  C* to_row = to + (row - band.first_row()) * band.row_elements();
  for (int64_t p = row_begin * width; p < row_end * width; p += kLanes<C>) {
    const int64_t pixels = std::min<int64_t>(kLanes<C>, row_end * width - p);
    Vector<C> square[kLanes<C>];
    for (int c = 0; c < kLanes<C>; ++c) {
      square[c] = c < channels ? load_converted<C>(image + c * strides.channel + p, pixels) : Vector<C>{};
    }
    transpose_vectors<C>(square);
    for (int64_t i = 0; i < pixels; ++i) {
      const int64_t element = band.column_element(column);
      if (element >= 0 && band.needs_row(row)) store_vector(to_row + element, square[i]);
      if (++column == width) {
        column = 0;
        ++row;
        to_row += band.row_elements();
      }
    }
  }
}

}  // namespace detail

/// Packs the channels [channel, channel + band.channels()) of an image.
template <class C, class T>
void pack_band(const PackedBand& band, const T* image, int64_t channel, const ImageStrides& strides,
               C* packed) {
  const T* end = image + strides.image;
  image += channel * strides.channel;
  for (int64_t block = 0; block < band.blocks(); ++block) {
    const int64_t first = block * kLanes<C>;
    const int64_t channels = std::min<int64_t>(kLanes<C>, band.channels() - first);
    C* to = packed + block * band.block_elements();
    if (strides.channel == 1) {
      detail::pack_adjacent(band, image + first, end, strides, channels, to);
    } else {
      detail::pack_planes(band, image + first * strides.channel, strides, channels, to);
    }
  }
}

/// Copies `channels` <= row_elements channels of `pixels` neighbouring pixels from scratch, whose pixels are
/// row_elements apart (a multiple of the lanes), to a tensor.
template <class C, class T>
void unpack_pixels(const C* scratch, int64_t row_elements, int64_t pixels, int64_t channels, T* image,
                   const ImageStrides& strides) {
  for (int64_t first = 0; first < channels; first += kLanes<C>) {
    const int64_t count = std::min<int64_t>(kLanes<C>, channels - first);
    const C* from = scratch + first;
    T* to = image + first * strides.channel;
    if (strides.channel == 1) {
      for (int64_t p = 0; p < pixels; ++p) {
        store_converted<C>(to + p * strides.pixel, load_vector(from + p * row_elements), count);
      }
      continue;
    }
    for (int64_t p = 0; p < pixels; p += kLanes<C>) {
      const int64_t width = std::min<int64_t>(kLanes<C>, pixels - p);
      Vector<C> square[kLanes<C>];
      for (int i = 0; i < kLanes<C>; ++i) {
        square[i] = i < width ? load_vector(from + (p + i) * row_elements) : Vector<C>{};
      }
      transpose_vectors<C>(square);
      for (int64_t c = 0; c < count; ++c) store_converted<C>(to + c * strides.channel + p, square[c], width);
    }
  }
}

}  // namespace sinter::ops
