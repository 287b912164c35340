// Transposes of matrices that fit into a cache, by small blocks in registers, written with the compiler's
// vector extension so that one source serves every instruction set.
//
// A square block is transposed by log2(n) perfect shuffles: each interleaves the upper half of the rows with
// the lower half, which rotates the bits of (row, column) by one; after log2(n) of them rows and columns have
// changed places.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace sinter::ops {

/// Rows and columns of the block that transpose_tile handles, for elements of type T.
template <class T>
inline constexpr int kTileSide = sizeof(T) == 8 ? 8 : 16;

namespace detail {

/// The elements of a row as words of their size.
template <class T>
struct TileRow {
  using Word = std::conditional_t<
      sizeof(T) == 8, uint64_t,
      std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  typedef Word type __attribute__((vector_size(sizeof(T) * static_cast<size_t>(kTileSide<T>))));
};

template <class V, size_t... kLane>
inline void interleave(const V& a, const V& b, V& low, V& high, std::index_sequence<kLane...>) {
  constexpr int n = sizeof...(kLane);
  low = __builtin_shufflevector(a, b, (static_cast<int>(kLane / 2) + (kLane % 2 == 0 ? 0 : n))...);
  high = __builtin_shufflevector(a, b, (n / 2 + static_cast<int>(kLane / 2) + (kLane % 2 == 0 ? 0 : n))...);
}

}  // namespace detail

/// out[c * out_stride + r] = in[r * in_stride + c] for r and c in [0, kTileSide<T>).
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
  for (int i = 0; i < n; ++i) std::memcpy(static_cast<void*>(out + i * out_stride), &rows[i], sizeof(Row));
}

namespace detail {

/// out[c * out_stride + r] = in[r * in_stride + c] for all columns of kRows rows: so few rows that the
/// compiler can interleave them.
template <int kRows, class T>
void transpose_few_rows(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t columns) {
  if (out_stride == kRows) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int r = 0; r < kRows; ++r) out[c * kRows + r] = in[r * in_stride + c];
    }
    return;
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int r = 0; r < kRows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

template <int kColumns, class T>
void transpose_few_columns(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows) {
  for (int c = 0; c < kColumns; ++c) {
    T* to = out + c * out_stride;
    if (in_stride == kColumns) {
      for (int64_t r = 0; r < rows; ++r) to[r] = in[r * kColumns + c];
    } else {
      for (int64_t r = 0; r < rows; ++r) to[r] = in[r * in_stride + c];
    }
  }
}

template <class T>
void transpose_plain(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows,
                     int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

}  // namespace detail

/// out[c * out_stride + r] = in[r * in_stride + c] for all r < rows and c < columns.
template <class T>
void transpose_block(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows,
                     int64_t columns) {
  if (rows == 2) return detail::transpose_few_rows<2>(in, in_stride, out, out_stride, columns);
  if (rows == 3) return detail::transpose_few_rows<3>(in, in_stride, out, out_stride, columns);
  if (rows == 4) return detail::transpose_few_rows<4>(in, in_stride, out, out_stride, columns);
  if (columns == 2) return detail::transpose_few_columns<2>(in, in_stride, out, out_stride, rows);
  if (columns == 3) return detail::transpose_few_columns<3>(in, in_stride, out, out_stride, rows);
  if (columns == 4) return detail::transpose_few_columns<4>(in, in_stride, out, out_stride, rows);
  constexpr int64_t n = kTileSide<T>;
  const int64_t whole_rows = rows - rows % n;
  const int64_t whole_columns = columns - columns % n;
  for (int64_t r = 0; r < whole_rows; r += n) {
    for (int64_t c = 0; c < whole_columns; c += n) {
      transpose_tile(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    }
  }
  detail::transpose_plain(in + whole_columns, in_stride, out + whole_columns * out_stride, out_stride,
                          whole_rows, columns - whole_columns);
  detail::transpose_plain(in + whole_rows * in_stride, in_stride, out + whole_rows, out_stride,
                          rows - whole_rows, columns);
}

}  // namespace sinter::ops
