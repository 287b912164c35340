// Transposes of small blocks in registers, written with the compiler's vector extension so that one source
// serves every instruction set.
//
// A square block is transposed by log2(n) perfect shuffles: each interleaves the upper half of the rows with
// the lower half, which rotates the bits of (row, column) by one; after log2(n) of them rows and columns have
// changed places.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace sinter::ops {

/// Rows and columns of the block that transpose_tile handles, for elements of type T.
template <class T>
inline constexpr int kTileSide = sizeof(T) == 8 ? 8 : 16;

namespace detail {

template <class T>
struct TileRow {
  typedef T type __attribute__((vector_size(sizeof(T) * static_cast<size_t>(kTileSide<T>))));
};

template <class V, size_t... kLane>
inline void interleave(const V& a, const V& b, V& low, V& high, std::index_sequence<kLane...>) {
  constexpr int n = sizeof...(kLane);
  low = __builtin_shufflevector(a, b, (static_cast<int>(kLane / 2) + (kLane % 2 == 0 ? 0 : n))...);
  high = __builtin_shufflevector(a, b, (n / 2 + static_cast<int>(kLane / 2) + (kLane % 2 == 0 ? 0 : n))...);
}

}  // namespace detail

/// out[c * out_stride + r] = in[r * in_stride + c] for r and c in [0, kTileSide<T>); T is an unsigned integer
/// type.
template <class T>
inline void transpose_tile(const T* in, int64_t in_stride, T* out, int64_t out_stride) {
  constexpr int n = kTileSide<T>;
  using Row = typename detail::TileRow<T>::type;
  Row rows[static_cast<size_t>(n)], shuffled[static_cast<size_t>(n)];
  for (int i = 0; i < n; ++i) std::memcpy(&rows[i], in + i * in_stride, sizeof(Row));
  for (int step = 1; step < n; step *= 2) {
    for (int i = 0; i < n / 2; ++i) {
      detail::interleave(rows[i], rows[i + n / 2], shuffled[2 * i], shuffled[2 * i + 1],
                         std::make_index_sequence<static_cast<size_t>(n)>());
    }
    for (int i = 0; i < n; ++i) rows[i] = shuffled[i];
  }
  for (int i = 0; i < n; ++i) std::memcpy(out + i * out_stride, &rows[i], sizeof(Row));
}

}  // namespace sinter::ops
