// How a row of a tensor, which may begin anywhere, is cut into chunks that begin where its memory is aligned.
// Host code without devices too, so that a unit test can use it.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

/// Chunk k of a row holds its columns first(k), ..., first(k) + pack - 1; of the first and of the last chunk,
/// some of them may lie outside the row. `Column`: a signed integer for columns.
template <int pack, class Column>
struct RowCut {
  static_assert((pack & (pack - 1)) == 0);

  /// The row begins `place` elements behind some address at a multiple of the pack; place >= 0.
  SINTER_HOST_DEVICE RowCut(int64_t place, Column row_columns)
      : columns(row_columns), shift(static_cast<Column>(place & (pack - 1))) {}

  SINTER_HOST_DEVICE Column chunks() const { return (shift + columns + pack - 1) / pack; }
  SINTER_HOST_DEVICE Column first(Column chunk) const { return chunk * pack - shift; }
  SINTER_HOST_DEVICE bool is_whole(Column first_column) const {
    return first_column >= 0 && first_column + pack <= columns;
  }
  SINTER_HOST_DEVICE bool is_inside(Column column) const { return column >= 0 && column < columns; }

  /// The most chunks that rows of so many columns have, wherever they begin.
  static constexpr Column most_chunks(Column columns) { return (columns + 2 * pack - 2) / pack; }

  Column columns, shift;
};

/// Bytes of registers in which a thread holds its part of a row, in the compute type.
inline constexpr int kResidentBytes = 128;

/// The threads that hold a row of `columns` elements, of which 16 bytes take `pack`: 32, 128 or 512; 0 for a
/// row that is too long, or empty. `aligned`: the first row begins at a multiple of 16 bytes.
inline int resident_row_threads(int64_t columns, int pack, bool aligned, int64_t compute_bytes) {
  if (columns == 0) return 0;
  const bool all_aligned = aligned && columns % pack == 0;
  const int64_t chunks = all_aligned ? columns / pack : (columns + 2 * pack - 2) / pack;
  const int64_t each = kResidentBytes / compute_bytes / pack;
  for (const int threads : {32, 128, 512}) {
    if (chunks <= threads * each) return threads;
  }
  return 0;
}

/// Elements between the last multiple of `bytes` (a power of two) before `pointer` and it.
inline int64_t elements_behind_aligned(const void* pointer, int64_t bytes, int64_t element) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer) & (static_cast<uintptr_t>(bytes) - 1)) /
         element;
}

}  // namespace sinter::ops
