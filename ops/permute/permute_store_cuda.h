// How a block stores a tile out of the image in shared memory. See permute_tiles_cuda.h.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace detail {

/// What a thread takes of a tile in columns: this column and this pack of its rows, and those that many
/// further on. Within a warp some lanes share a column.
template <TileKind kKind>
struct ColumnLane {
  int column, pack, column_step, pack_step;

  SINTER_HOST_DEVICE ColumnLane(const TileJob& job, int thread)
      : column_step(1 << job.log_columns), pack_step((1 << log_threads(kKind)) >> job.log_columns) {
    const auto low_bits = [](int value, int bits) { return value & ((1 << bits) - 1); };
    const int lane = low_bits(thread, job.log_lanes), others = thread >> job.log_lanes;
    const int in_warp = low_bits(others, job.log_warp);
    const int warp = low_bits(others, job.log_columns) >> job.log_warp;
    column = low_bits(warp, job.log_spread) + (in_warp << job.log_spread) +
             (warp >> job.log_spread << (job.log_spread + job.log_warp));
    pack = lane + (others >> job.log_columns << job.log_lanes);
  }
};

/// Rounds of a loop over columns or packs, and how far one is from the next.
struct StoreLoop {
  int count;
  int64_t out_step;
  int image_step;
};

/// The packs of a thread, column by column or pack by pack. What it reads next is always as far away.
template <TileKind kKind, class T, class Read>
SINTER_HOST_DEVICE inline void store_walk(const TileJob& job, const ColumnLane<kKind>& lane,
                                          const StoreLoop& by_column, const StoreLoop& by_pack,
                                          const std::byte* image, T* to, Read&& read) {
  const bool one_column = job.column_step <= lane.column_step;
  const StoreLoop outer = one_column ? by_column : by_pack, inner = one_column ? by_pack : by_column;
  const int64_t inner_out = cuda::in_register(inner.out_step);
  const int inner_image = cuda::in_register(inner.image_step), inner_count = cuda::in_register(inner.count);
  SINTER_KEEP_LOOP
  for (int i = outer.count; i > 0; --i) {
    T* inner_to = to;
    const std::byte* inner_from = image;
    SINTER_KEEP_LOOP
    for (int k = inner_count; k > 0; --k) {
      store_pack<false>(inner_to, read(inner_from));
      inner_to += inner_out;
      inner_from += inner_image;
    }
    to += outer.out_step;
    image += outer.image_step;
  }
}

/// Every column of a tile as a run of the output, in packs of rows. Every aligned pack (of sectors: the pair)
/// belongs to the tile in whose first row_step rows it begins.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void store_columns(const TileJob& job, const Tile& tile, int thread,
                                             const TileMemory& memory, T* out) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  const ColumnLane<kKind> lane(job, thread);
  const int columns = smaller(tile.columns, job.column_step);
  if (lane.column >= columns) return;
  // The columns of a thread have the same alignment.
  const int64_t start = tile.out + job.columns.locate<false>(tile.column + lane.column);
  const int shift = job.shift_of(start), first_row = lane.pack * n + shift;
  const int packs = smaller(job.row_step, tile.rows - shift) >> job.log_pack;
  const StoreLoop by_column{(columns - lane.column + lane.column_step - 1) >> job.log_columns,
                            job.columns.locate<false>(lane.column_step), lane.column_step * size};
  const StoreLoop by_pack{(packs - lane.pack + lane.pack_step - 1) >> (log_threads(kKind) - job.log_columns),
                          lane.pack_step * n, lane.pack_step * (n * job.pitch + job.skip)};
  T* const to = out + start + first_row;
  // With 16 lanes to a column, each two meet in a bank: one of them reads the halves of its packs in the
  // other order.
  const bool swaps = kKind == TileKind::kShiftedColumns && job.log_lanes == 4 && (thread & 8) != 0;
  const int base = image_base<T>(job, tile);
  int places[size_t{n}];
  SINTER_UNROLL
  for (int j = 0; j < n; ++j) {
    const int row = first_row + (swaps ? j ^ (n / 2) : j);
    places[j] = cuda::in_register(job.place(row, base) + lane.column * size);
  }
  store_walk(job, lane, by_column, by_pack, memory.image, to, [&](const std::byte* image) {
    return collect<T>([&](int j) { return image_element<T>(image, places[j]); }, swaps);
  });
}

/// The same where rows or columns run over several axes, so that each has a place of its own.
template <class T>
SINTER_HOST_DEVICE inline void store_scattered_columns(const TileJob& job, const Tile& tile, int thread,
                                                       const TileMemory& memory, T* out) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  const ColumnLane<TileKind::kSeveralAxes> lane(job, thread);
  const int columns = smaller(tile.columns, job.column_step);
  SINTER_KEEP_LOOP
  for (int pack = lane.pack; pack * n < job.row_step && pack * n + n <= tile.rows; pack += lane.pack_step) {
    int places[size_t{n}] = {};
    int known = -1;
    SINTER_KEEP_LOOP
    for (int column = lane.column; column < columns; column += lane.column_step) {
      const int64_t start = memory.columns[column];
      const int shift = job.shift_of(start), row = pack * n + shift;
      if (row + n > tile.rows) continue;
      if (shift != known) {
        known = shift;
        SINTER_UNROLL
        for (int j = 0; j < n; ++j) places[j] = memory.places[job.place_index(row + j)];
      }
      const std::byte* image = memory.image + column * size;
      store_pack<false>(out + start + row,
                        collect<T>([&](int j) { return image_element<T>(image, places[j]); }));
    }
  }
}

/// The elements before a column's first aligned pack, which go with it, and those behind its last: where the
/// next column follows at once, a pack of both.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void store_column_ends(const TileJob& job, const Tile& tile, int thread,
                                                 const TileMemory& memory, T* out) {
  constexpr bool kSeveral = kKind == TileKind::kSeveralAxes;
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  if (tile.row != 0 && tile.rows >= job.row_step + job.cut_unit) return;
  const int base = kSeveral ? 0 : image_base<T>(job, tile);
  const int next_base = job.image_bytes + job.input.behind<T>(tile.in + 1) * size;
  const int columns = smaller(tile.columns, job.column_step);
  SINTER_KEEP_LOOP
  for (int column = thread; column < columns; column += 1 << log_threads(kKind)) {
    const int64_t start =
        kSeveral ? memory.columns[column] : tile.out + job.columns.locate<false>(tile.column + column);
    const int shift = job.shift_of(start), rest = shift + (tile.rows - shift) / n * n;
    const bool near = kSeveral && job.next_column != 0;
    // Whether the columns that come before and behind this one in the output are in the tile.
    const auto follows = [&](int before, int behind) {
      return before >= 0 && behind < columns &&
             memory.columns[before] + job.row_count == memory.columns[behind];
    };
    const bool has_previous = near && follows(column - job.next_column, column),
               has_next = near && follows(column, column + job.next_column);
    const auto read = [&](int row) {
      const bool beyond = row >= tile.rows;  // in the column that follows
      const int in_column = beyond ? row - tile.rows : row;
      const int from = kKind == TileKind::kShiftedColumns && beyond ? next_base : base;
      const int place = kSeveral ? memory.places[job.place_index(in_column)] : job.place(in_column, from);
      const int in_row = kSeveral && beyond ? column + job.next_column : column;
      return image_element<T>(memory.image, place + in_row * size);
    };
    const auto store = [&](int begin, int end) {
      SINTER_KEEP_LOOP
      for (int row = begin; row < end; ++row) out[start + row] = read(row);
    };
    const bool joined = kKind == TileKind::kShiftedColumns && job.joined;
    if (tile.row == 0 && !has_previous && (!joined || tile.column + column == 0)) {
      store(0, smaller(shift & (n - 1), tile.rows));
    }
    SINTER_KEEP_LOOP  // where tiles cut columns at sectors, a pack may lie before the first one
        for (int row = shift & (n - 1); tile.row == 0 && row < shift && row + n <= tile.rows; row += n) {
      store_pack<false>(out + start + row, collect<T>([&](int j) { return read(row + j); }));
    }
    if (tile.rows <= shift || rest == tile.rows || rest - shift >= job.row_step) continue;
    if (has_next || (joined && column + 1 < tile.columns)) {
      store_pack<false>(out + start + rest, collect<T>([&](int j) { return read(rest + j); }));
    } else {
      store(rest, tile.rows);
    }
  }
}

/// Walks a tile of whole columns in the order of the output.
struct PieceWalk {
  int row, column, inner;

  SINTER_HOST_DEVICE PieceWalk(const TileJob& job, int index) {
    uint32_t rest = 0, at = 0;
    const uint32_t outer = job.inner.divide(static_cast<uint32_t>(index), rest);
    const uint32_t matrix = job.middle.divide(outer, at);
    inner = static_cast<int>(rest);
    row = static_cast<int>(matrix * job.inner.divisor()) + inner;
    column = static_cast<int>(at);
  }
  SINTER_HOST_DEVICE void advance(const TileJob& job) {
    const auto inner_length = static_cast<int>(job.inner.divisor());
    ++row;
    if (++inner < inner_length) return;
    inner = 0;
    row -= inner_length;
    if (++column == static_cast<int>(job.middle.divisor())) {
      column = 0;
      row += inner_length;
    }
  }
};

/// A piece of the output, in packs.
template <class T>
SINTER_HOST_DEVICE inline void store_piece(const TileJob& job, const Tile& tile, int thread,
                                           const std::byte* image, T* out) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  const int length = smaller(tile.rows, job.row_step) * smaller(tile.columns, job.column_step);
  const int base = image_base<T>(job, tile);
  if (thread >= job.pack_step) return;

  int places[size_t{n}] = {};
  bool known = false;
  int first = thread * n - job.output.behind<T>(tile.out);
  T* to = out + tile.out + first;
  const std::byte* from = image;
  const int64_t to_step = cuda::in_register(job.pack_step * n);
  SINTER_KEEP_LOOP
  for (; first < length; first += job.pack_step * n) {
    if (!known) {
      from = image;
      PieceWalk at(job, first < 0 ? 0 : first);
      SINTER_UNROLL
      for (int j = 0; j < n; ++j) {
        places[j] = cuda::in_register(job.place(at.row, base) + at.column * size);
        if (first + j >= 0) at.advance(job);
      }
      known = job.place_step != 0 && first >= 0;
    }
    if (first >= 0 && first + n <= length) {
      store_pack<true>(to, collect<T>([&](int j) { return image_element<T>(from, places[j]); }));
    } else {
      SINTER_UNROLL
      for (int j = 0; j < n; ++j) {
        if (first + j >= 0 && first + j < length) to[j] = image_element<T>(from, places[j]);
      }
    }
    to += to_step;
    from += job.place_step;
  }
}

}  // namespace detail

/// Stores a thread's part of a tile once all threads have loaded theirs.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void store_tile(const TileJob& job, const Tile& tile, int thread,
                                          const TileMemory& memory, T* out) {
  if constexpr (kKind == TileKind::kWholeColumns) {
    detail::store_piece<T>(job, tile, thread, memory.image, out);
  } else {
    if constexpr (kKind == TileKind::kSeveralAxes) {
      detail::store_scattered_columns<T>(job, tile, thread, memory, out);
    } else {
      detail::store_columns<T, kKind>(job, tile, thread, memory, out);
    }
    if (!job.whole_packs) detail::store_column_ends<T, kKind>(job, tile, thread, memory, out);
  }
}

}  // namespace sinter::ops
