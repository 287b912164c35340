// How a block copies a tile of the input into the image in shared memory. See permute_tiles_cuda.h.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace detail {

/// Rows of `length` elements of which the first begins at `start`, wherever they lie: over several axes, or
/// at the ends of the tensor.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void copy_any_rows(const TileJob& job, const Tile& tile, int64_t start, int rows,
                                             int length, int thread, const T* in, std::byte* image,
                                             int* places) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  constexpr bool kSeveral = kKind == TileKind::kSeveralAxes;
  constexpr int kThreads = 1 << log_threads(kKind);
  const int base = job.input.behind<T>(start) * size, width = 1 << job.log_band;
  SINTER_KEEP_LOOP
  for (int row = thread >> job.log_band; row < rows; row += kThreads >> job.log_band) {
    const int64_t at =
        kSeveral ? tile.in + job.rows.locate<true>(tile.row + row) : start + job.rows.locate<false>(row);
    const int shift = job.input.behind<T>(at), lane = thread & (width - 1);
    const int place = job.place(row, kSeveral ? shift * size : base);
    if (kSeveral && lane == 0) places[job.place_index(row)] = place;
    SINTER_KEEP_LOOP
    for (int first = lane * n - shift; first < length; first += width * n) {
      std::byte* to = image + place + first * size;
      if (at + first >= 0 && at + first + n <= job.input.total) {
        copy_pack(to, in + at + first);
        continue;
      }
      SINTER_KEEP_LOOP
      for (int j = 0; j < n; ++j) {
        if (first + j < 0 || first + j >= length) continue;
        *reinterpret_cast<T*>(to + j * size) = in[at + first + j];
      }
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
  const int64_t from_step = pinned(step * stride);
  const int to_step = pinned(step * job.pitch + (step >> job.log_pack) * job.skip);
  const int apart = pinned(width * n);  // of the two packs that a thread copies of a row
  int first = (thread & (width - 1)) * n - shift;
  const T* from = in + start + row * stride + first;
  std::byte* to = image + job.place(row, base * size) + first * size;
  SINTER_KEEP_LOOP
  for (; first < length; first += 2 * apart) {
    const bool both = first + apart < length;
    const T* next_from = from;
    std::byte* next_to = to;
    SINTER_KEEP_LOOP
    for (int left = pinned(rows - row); left > 0; left -= step) {
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

/// Copies a thread's part of a tile into the image; wait_for_copies() and a barrier follow.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void load_tile(const TileJob& job, const Tile& tile, int thread, const T* in,
                                         const TileMemory& memory) {
  constexpr int n = Pack<T>::kSize;
  const int rows = smaller(tile.rows, job.rows_loaded), columns = smaller(tile.columns, job.column_step);
  if constexpr (kKind == TileKind::kSeveralAxes) {
    detail::copy_any_rows<T, kKind>(job, tile, 0, rows, columns, thread, in, memory.image, memory.places);
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
      detail::copy_any_rows<T, kKind>(job, tile, next ? tile.in + 1 : start, next ? n - 1 : runs,
                                      next ? smaller(tile.columns - 1, job.column_step) : run_length, thread,
                                      in, memory.image + (next ? job.image_bytes : 0), nullptr);
    }
  }
}

}  // namespace sinter::ops
