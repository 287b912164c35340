// How a block copies a tile of the input into the image in shared memory. See permute_tiles_cuda.h.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace detail {

/// Copies what is there of the `length` elements from `at` on, wherever the tensor ends: a thread's packs of
/// them.
template <class T>
SINTER_HOST_DEVICE inline void copy_row_at_end(const TileJob& job, int64_t at, int first, int step,
                                               int length, const T* in, std::byte* to) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  SINTER_KEEP_LOOP
  for (; first < length; first += step) {
    if (at + first >= 0 && at + first + n <= job.input.total) {
      copy_pack(to + first * size, in + at + first);
      continue;
    }
    SINTER_KEEP_LOOP
    for (int j = first; j < first + n; ++j) {
      if (j >= 0 && j < length) *reinterpret_cast<T*>(to + j * size) = in[at + j];
    }
  }
}

/// Rows of a single axis and of `length` elements, of which the first begins at `start`, at the ends of the
/// tensor.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void copy_rows_at_ends(const TileJob& job, int64_t start, int rows, int length,
                                                 int thread, const T* in, std::byte* image) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  constexpr int kThreads = 1 << log_threads(kKind);
  const int base = job.input.behind<T>(start) * size, width = 1 << job.log_band;
  SINTER_KEEP_LOOP
  for (int row = thread >> job.log_band; row < rows; row += kThreads >> job.log_band) {
    const int64_t at = start + job.rows.locate<false>(row);
    copy_row_at_end(job, at, (thread & (width - 1)) * n - job.input.behind<T>(at), width * n, length, in,
                    image + job.place(row, base));
  }
}

/// Rows that the tables tell.
template <class T>
SINTER_HOST_DEVICE inline void copy_scattered_rows(const TileJob& job, int rows, int length, int thread,
                                                   const T* in, const TileMemory& memory) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  constexpr int kThreads = 1 << log_threads(TileKind::kSeveralAxes);
  const int width = 1 << job.log_band, step = width * n, lane = (thread & (width - 1)) * n;
  SINTER_KEEP_LOOP
  for (int row = thread >> job.log_band; row < rows; row += kThreads >> job.log_band) {
    const int64_t noted = memory.rows[row], at = noted < 0 ? ~noted : noted;
    std::byte* const to = memory.image + memory.places[job.place_index(row)];
    int first = lane - job.input.behind<T>(at);
    if (noted < 0) {
      copy_row_at_end(job, at, first, step, length, in, to);
      continue;
    }
    const T* from = in + at + first;
    std::byte* pack_to = to + first * size;
    SINTER_KEEP_LOOP
    for (; first < length; first += step) {
      copy_pack(pack_to, from);
      from += step;
      pack_to += step * size;
    }
  }
}

/// Rows of a single axis inside the tensor.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void copy_rows(const TileJob& job, int64_t start, int rows, int length, int thread,
                                         const T* in, std::byte* image) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  constexpr int kThreads = 1 << log_threads(kKind);
  const int64_t stride = job.rows.axes[0].stride;
  const int base = job.input.behind<T>(start);
  const int width = 1 << job.log_band, step = kThreads >> job.log_band;
  const int row = thread >> job.log_band;
  // The rows of a thread are a multiple of a pack apart: all have the same alignment.
  const int shift = (base + row * static_cast<int>(stride)) & (n - 1);
  const int64_t from_step = cuda::in_register(step * stride);
  const int to_step = cuda::in_register(step * job.pitch + (step >> job.log_pack) * job.skip);
  const int apart = cuda::in_register(width * n);  // of the two packs that a thread copies of a row
  int first = (thread & (width - 1)) * n - shift;
  const T* from = in + start + row * stride + first;
  std::byte* to = image + job.place(row, base * size) + first * size;
  SINTER_KEEP_LOOP
  for (; first < length; first += 2 * apart) {
    const bool both = first + apart < length;
    const T* next_from = from;
    std::byte* next_to = to;
    SINTER_KEEP_LOOP
    for (int left = cuda::in_register(rows - row); left > 0; left -= step) {
      copy_pack(next_to, next_from);
      if (both) copy_pack(next_to + apart * size, next_from + apart);
      next_from += from_step;
      next_to += to_step;
    }
    from += 2 * apart;
    to += 2 * apart * size;
  }
}

/// The same for long rows, which all threads copy one after the other.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void copy_long_rows(const TileJob& job, int64_t start, int rows, int length,
                                              int thread, const T* in, std::byte* image) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  constexpr int kThreads = 1 << log_threads(kKind);
  const int step = kThreads * n;
  const int base = job.input.behind<T>(start) * size;
  SINTER_KEEP_LOOP
  for (int row = 0; row < rows; ++row) {
    const int begin = thread * n - job.input.behind<T>(start);
    const T* from = in + start + begin;
    std::byte* to = image + job.place(row, base) + begin * size;
    SINTER_KEEP_LOOP
    for (int first = begin; first < length; first += step) {
      copy_pack(to, from);
      from += step;
      to += step * size;
    }
    start += job.rows.axes[0].stride;
  }
}

}  // namespace detail

/// Fills in a thread's part of the tables for kSeveralAxes; a barrier follows.
template <class T>
SINTER_HOST_DEVICE inline void note_tile(const TileJob& job, const Tile& tile, int thread,
                                         const TileMemory& memory) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  constexpr int kThreads = 1 << log_threads(TileKind::kSeveralAxes);
  const int rows = smaller(tile.rows, job.rows_loaded), columns = smaller(tile.columns, job.column_step);
  SINTER_KEEP_LOOP
  for (int column = thread; column < columns; column += kThreads) {
    memory.columns[column] = tile.out + job.columns.locate<true>(tile.column + column);
  }
  SINTER_KEEP_LOOP
  for (int row = thread; row < rows; row += kThreads) {
    const int64_t at = tile.in + job.rows.locate<true>(tile.row + row);
    const bool inside = at >= n && at + columns + n <= job.input.total;
    memory.rows[row] = inside ? at : ~at;
    memory.places[job.place_index(row)] = job.place(row, job.input.behind<T>(at) * size);
  }
}

/// Copies a thread's part of a tile into the image; wait_for_copies() and a barrier follow.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void load_tile(const TileJob& job, const Tile& tile, int thread, const T* in,
                                         const TileMemory& memory) {
  constexpr int n = Pack<T>::kSize;
  const int rows = smaller(tile.rows, job.rows_loaded), columns = smaller(tile.columns, job.column_step);
  if constexpr (kKind == TileKind::kSeveralAxes) {
    detail::copy_scattered_rows<T>(job, rows, columns, thread, in, memory);
  } else {
    const int runs = job.piece ? 1 : rows, run_length = job.piece ? rows * columns : columns;
    const int64_t start = tile.in + job.rows.locate<false>(tile.row);
    const int64_t last = start + job.rows.locate<false>(rows - 1);
    const bool inside = start >= n && last + columns + n <= job.input.total;
    if (inside && job.long_rows) {
      detail::copy_long_rows<T, kKind>(job, start, runs, run_length, thread, in, memory.image);
    } else if (inside) {
      detail::copy_rows<T, kKind>(job, start, rows, columns, thread, in, memory.image);
    }
    SINTER_KEEP_LOOP
    for (int part = inside ? 1 : 0;
         part < (kKind == TileKind::kShiftedColumns && job.holds_next(tile) ? 2 : 1); ++part) {
      const bool next = part == 1;  // the first rows of the columns that follow in the output
      detail::copy_rows_at_ends<T, kKind>(job, next ? tile.in + 1 : start, next ? n - 1 : runs,
                                          next ? smaller(tile.columns - 1, job.column_step) : run_length,
                                          thread, in, memory.image + (next ? job.image_bytes : 0));
    }
  }
}

}  // namespace sinter::ops
