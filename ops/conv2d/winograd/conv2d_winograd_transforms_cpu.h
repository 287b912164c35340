// The transforms of Winograd's convolution F(2x2, 3x3) (Lavin, Gray 2015, "Fast Algorithms for Convolutional
// Neural Networks"): a tile of 2x2 targets takes 16 products per pair of channels where the filter's taps
// take
// 36. With d the 4x4 source pixels of a tile, g the filter and m the products added up over channels,
//   y = A^T m A,  m = (G g G^T) * (B^T d B);  and the gradient  dg = G^T ((A dy A^T) * (B^T d B)) G.
// All work on vectors of channels. In front of them what else the kernels share.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/ops/common/cpu/vector_cpu.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

namespace sinter::ops::winograd {

inline constexpr int64_t kTilePixels = 2;   // targets of a tile along an axis
inline constexpr int64_t kTileSource = 4;   // source pixels that they read
inline constexpr int64_t kProducts = 16;    // per tile and pair of channels
inline constexpr int64_t kBlockTiles = 32;  // tiles that are worked on together, unless a row has more
inline constexpr int64_t kFilter = 3;

/// Whole vectors of channels.
template <class C>
int64_t padded_channels(int64_t channels) {
  return (channels + kLanes<C> - 1) / kLanes<C> * kLanes<C>;
}

/// Bytes of so many elements, in whole cache lines.
template <class C>
int64_t bytes_of(int64_t elements) {
  constexpr int64_t alignment = 64;
  return (elements * static_cast<int64_t>(sizeof(C)) + alignment - 1) / alignment * alignment;
}

inline int64_t tiles_of(int64_t targets) {
  return (targets + kTilePixels - 1) / kTilePixels;
}

/// Memory to bring into the caches bit by bit while something else is computed.
struct Prefetch {
  const std::byte* first = nullptr;
  int64_t bytes = 0;

  /// The parts [begin, end) of `count`.
  Prefetch range(int64_t begin, int64_t end, int64_t count) const {
    return {first + bytes * begin / count, bytes * end / count - bytes * begin / count};
  }
  template <bool to_write = false>
  void run(int64_t part, int64_t count) const {
    constexpr int64_t line = 64;
    const Prefetch own = range(part, part + 1, count);
    for (int64_t i = 0; i < own.bytes; i += line) __builtin_prefetch(own.first + i, to_write ? 1 : 0);
  }
};

template <class T>
Prefetch prefetch_of(const T* first, int64_t elements) {
  return {reinterpret_cast<const std::byte*>(first), elements * static_cast<int64_t>(sizeof(T))};
}

/// Elements between the products of neighbouring vectors: an odd number of vectors, because a power of two
/// would put all sixteen products of a tile into a few sets of the first-level cache.
template <class C>
int64_t product_distance(int64_t vectors) {
  return (vectors | 1) * kLanes<C>;
}

/// B^T d B of a row of tiles, of one vector of channels: product p of tile t goes to to[p * product + t *
/// lanes]. `from` is the first tile's first pixel; pixels of a row lie side by side.
template <class C>
void transform_source(const C* from, int64_t row, int64_t tiles, C* to, int64_t product) {
  constexpr int64_t lanes = kLanes<C>;
  struct Column {
    Vector<C> rows[4];
  };
  const auto load_column = [=](int64_t column) __attribute__((always_inline)) {
    const C* first = from + column * lanes;
    const Vector<C> a = load_vector(first), b = load_vector(first + row);
    const Vector<C> c = load_vector(first + 2 * row), d = load_vector(first + 3 * row);
    return Column{{a - c, b + c, c - b, b - d}};
  };
  Column a = load_column(0), b = load_column(1);
  for (int64_t t = 0; t < tiles; ++t, to += lanes) {
    const Column c = load_column(2 * t + 2), d = load_column(2 * t + 3);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      C* const products = to + 4 * r * product;
      store_vector(products, a.rows[r] - c.rows[r]);
      store_vector(products + product, b.rows[r] + c.rows[r]);
      store_vector(products + 2 * product, c.rows[r] - b.rows[r]);
      store_vector(products + 3 * product, b.rows[r] - d.rows[r]);
    }
    a = c;
    b = d;
  }
}

/// A dy A^T of a row of tiles, laid out as by transform_source().
template <class C>
void transform_gradient(const C* from, int64_t row, int64_t tiles, C* to, int64_t product) {
  constexpr int64_t lanes = kLanes<C>;
  for (int64_t t = 0; t < tiles; ++t, from += 2 * lanes, to += lanes) {
    const Vector<C> a = load_vector(from), b = load_vector(from + lanes);
    const Vector<C> c = load_vector(from + row), d = load_vector(from + row + lanes);
    const Vector<C> left[4] = {a, a + c, a - c, -c}, right[4] = {b, b + d, b - d, -d};
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      C* const products = to + 4 * r * product;
      store_vector(products, left[r]);
      store_vector(products + product, left[r] + right[r]);
      store_vector(products + 2 * product, left[r] - right[r]);
      store_vector(products + 3 * product, -right[r]);
    }
  }
}

/// A^T m A of one tile and vector of channels, added to `initial`; products are `product` elements apart.
template <class C>
[[gnu::always_inline]] inline void transform_target(const C* from, int64_t product, Vector<C> initial,
                                                    Vector<C> (&to)[2][2]) {
  Vector<C> top[4], bottom[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const C* const column = from + c * product;
    const Vector<C> second = load_vector(column + 4 * product), third = load_vector(column + 8 * product);
    top[c] = load_vector(column) + (second + third);
    bottom[c] = (second - third) - load_vector(column + 12 * product);
  }
  to[0][0] = top[0] + (top[1] + top[2]) + initial;
  to[0][1] = (top[1] - top[2]) - top[3] + initial;
  to[1][0] = bottom[0] + (bottom[1] + bottom[2]) + initial;
  to[1][1] = (bottom[1] - bottom[2]) - bottom[3] + initial;
}

/// G g G^T: 16 vectors from the 9 taps of a filter.
template <class C>
void transform_filter(const Vector<C> (&taps)[9], Vector<C> (&to)[16]) {
  const auto expand = [](Vector<C> a, Vector<C> b, Vector<C> c, Vector<C>(&into)[4]) {
    const Vector<C> outer = a + c;
    into[0] = a;
    into[1] = (outer + b) * C(0.5);
    into[2] = (outer - b) * C(0.5);
    into[3] = c;
  };
  Vector<C> columns[3][4];
  for (size_t v = 0; v < 3; ++v) expand(taps[v], taps[3 + v], taps[6 + v], columns[v]);
  for (size_t r = 0; r < 4; ++r) {
    Vector<C> row[4];
    expand(columns[0][r], columns[1][r], columns[2][r], row);
    for (size_t c = 0; c < 4; ++c) to[4 * r + c] = row[c];
  }
}

/// G^T m G: the 9 taps of a filter's gradient from 16 vectors.
template <class C>
void transform_filter_gradient(const Vector<C> (&from)[16], Vector<C> (&taps)[9]) {
  const auto contract = [](Vector<C> a, Vector<C> b, Vector<C> c, Vector<C> d, Vector<C>(&into)[3]) {
    const Vector<C> sum = (b + c) * C(0.5);
    into[0] = a + sum;
    into[1] = (b - c) * C(0.5);
    into[2] = sum + d;
  };
  Vector<C> columns[4][3];
  for (size_t c = 0; c < 4; ++c) contract(from[c], from[4 + c], from[8 + c], from[12 + c], columns[c]);
  for (size_t u = 0; u < 3; ++u) {
    Vector<C> row[3];
    contract(columns[0][u], columns[1][u], columns[2][u], columns[3][u], row);
    for (size_t v = 0; v < 3; ++v) taps[3 * u + v] = row[v];
  }
}

}  // namespace sinter::ops::winograd
