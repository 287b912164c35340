// Transposing through shared memory, 16 bytes at a time on both sides: which tile a block moves, and how its
// threads move it.
//
// A permutation that moves the last axis is seen as matrices. Their columns run along the last axes of the
// input, so that a row is contiguous in the input; their rows run along the last axes of the output, so that
// a column is contiguous there. Each thread loads 16 bytes of four rows, transposes them in its registers and
// puts them into shared memory, where columns are contiguous; then packs of columns are stored.
#pragma once

#include <sinter/ops/permute/permute_packs_cuda.h>
#include <sinter/ops/permute/permute_plan.h>

namespace sinter::ops {

/// One tile: offsets of its first element in both tensors, its first row and column, and how many rows and
/// columns there are from there on (more than the tile holds if others follow).
struct Tile {
  int64_t in = 0, out = 0;
  int64_t row = 0, column = 0;
  int rows = 0, columns = 0;
};

/// A permutation as tiles of 2^log_row_packs packs of rows by 2^log_column_packs packs of columns. Offsets,
/// strides, rows and columns are counted in elements.
struct TileJob {
  bool shifted = false;    ///< runs begin at any address: a pack is cut from two
  bool several = false;    ///< rows or columns run over several axes
  SideAxes rows, columns;  ///< strides in the input, strides in the output
  OuterAxes outer;
  int64_t row_count = 1, column_count = 1;
  int64_t tiles = 0;
  cuda::WideDivide row_tiles, column_tiles;
  bool rows_first = true;  ///< neighbouring blocks take neighbouring tiles of rows
  int row_step = 0;        ///< rows that a tile stores: fewer than it loads if stores are not aligned
  int log_row_packs = 0, log_column_packs = 0;
  int key_shift = 0;
  int log_pack = 0;  ///< elements of a pack
  PackSpace input, output;
  int64_t first_pack = 0, last_pair = 0;  ///< where the first pack inside the input begins, and the last two

  SINTER_HOST_DEVICE Tile tile(int64_t task, int pack) const {
    int64_t row_tile = 0, column_tile = 0;
    if (rows_first) {
      task = row_tiles.divide(task, row_tile);
      task = column_tiles.divide(task, column_tile);
    } else {
      task = column_tiles.divide(task, column_tile);
      task = row_tiles.divide(task, row_tile);
    }
    Tile tile;
    tile.row = row_tile * row_step;
    tile.column = column_tile * (pack << log_column_packs);
    outer.locate(task, tile.in, tile.out);
    tile.in += tile.column;
    tile.out += tile.row;
    tile.rows = limited(row_count - tile.row);
    tile.columns = limited(column_count - tile.column);
    return tile;
  }

  /// Where shared memory holds the bytes of a column from byte `row_byte` on. Bits 4 to 6 are mixed with the
  /// column's number so that neither the columns that a warp writes nor the packs that it reads meet in one
  /// bank.
  SINTER_HOST_DEVICE int place(int column, int row_byte) const {
    return ((column << (log_row_packs + 4)) + row_byte) ^ (((column >> key_shift) & 7) << 4);
  }
};

/// How shifted rows are loaded: by elements, or cut out of packs. Elements take fewer instructions from 4
/// bytes on, unless finding a row takes divisions.
constexpr bool loads_elements(size_t element_bytes, bool several) {
  return element_bytes >= 4 && !several;
}

/// The plan's permutation of elements of `element_bytes` bytes at these addresses, for plans that move the
/// last axis.
TileJob plan_tiles(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output);

namespace detail {

/// Four rows of one column, from row `row` on.
template <class T>
SINTER_HOST_DEVICE inline void put_quad(const TileJob& job, int column, int row, const Quad<T>& quad,
                                        std::byte* shared) {
  constexpr int size = static_cast<int>(sizeof(T));
  if constexpr (size <= 4) {
    *reinterpret_cast<Quad<T>*>(shared + job.place(column, row * size)) = quad;
  } else {
    SINTER_UNROLL
    for (int part = 0; part < size / 4; ++part) {
      Pack<T> pack;
      memcpy(&pack, reinterpret_cast<const std::byte*>(&quad) + 16 * part, 16);
      *reinterpret_cast<Pack<T>*>(shared + job.place(column, row * size + 16 * part)) = pack;
    }
  }
}

/// What a thread takes of a tile: four rows of one pack.
struct MicroTile {
  int row, column;
};

/// Within a warp eight packs lie side by side (fewer if rows are shorter).
template <class T>
SINTER_HOST_DEVICE inline MicroTile micro_tile(const TileJob& job, int thread) {
  const int low_bits = smaller(job.log_column_packs, 3), high_bits = job.log_column_packs - low_bits;
  const int log_quads = 8 - job.log_column_packs, low_quads = smaller(log_quads, 2);
  const int block = thread >> (low_bits + low_quads);
  const int pack = (thread & ((1 << low_bits) - 1)) | ((block & ((1 << high_bits) - 1)) << low_bits);
  const int quad = ((thread >> low_bits) & ((1 << low_quads) - 1)) | ((block >> high_bits) << low_quads);
  return {quad * 4, pack * Pack<T>::kSize};
}

template <class T>
SINTER_HOST_DEVICE inline void put_quads(const TileJob& job, const MicroTile& micro,
                                         const Pack<T> (&packs)[4], std::byte* shared) {
  Quad<T> quads[16 / sizeof(T)];
  transpose(packs, quads);
  SINTER_UNROLL
  for (int j = 0; j < Pack<T>::kSize; ++j) put_quad(job, micro.column + j, micro.row, quads[j], shared);
}

/// Aligned rows: a thread takes 16 bytes of four rows and transposes them in its registers.
template <class T, bool kSeveral>
SINTER_HOST_DEVICE inline void load_packs(const TileJob& job, const Tile& tile, int thread, const T* in,
                                          std::byte* shared) {
  const MicroTile micro = micro_tile<T>(job, thread);
  if (micro.row >= tile.rows || micro.column >= tile.columns) return;
  Pack<T> packs[4];
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) {  // rows beyond the last one are loaded as the last one
    const int64_t at = tile.row + smaller(micro.row + i, tile.rows - 1);
    packs[i] = load_pack(in + tile.in + job.rows.locate<kSeveral>(at) + micro.column);
  }
  put_quads(job, micro, packs, shared);
}

/// Rows at any address, cut out of aligned packs: what a thread does in load_packs with twice the loads.
template <class T, bool kSeveral>
SINTER_HOST_DEVICE inline void load_cut(const TileJob& job, const Tile& tile, int thread, const T* in,
                                        std::byte* shared) {
  constexpr int n = Pack<T>::kSize;
  const MicroTile micro = micro_tile<T>(job, thread);
  if (micro.row >= tile.rows || micro.column >= tile.columns) return;
  const auto start_of = [&](int i) {  // rows beyond the last one are loaded as the last one
    return tile.in + job.rows.locate<kSeveral>(tile.row + smaller(micro.row + i, tile.rows - 1)) +
           micro.column;
  };
  Pack<T> packs[4] = {};
  bool whole[4] = {};
  if (job.last_pair >= job.first_pack) {
    Pack<T> next[4];
    int shifts[4];
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) {  // without branches, so that all loads are under way at once
      const int64_t start = start_of(i);
      shifts[i] = job.input.behind<T>(start);
      int64_t at = start - shifts[i];
      at = at < job.first_pack ? job.first_pack : at;
      at = at > job.last_pair ? job.last_pair : at;
      whole[i] = at == start - shifts[i];
      packs[i] = load_pack(in + at);
      next[i] = load_pack(in + at + n);
    }
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) packs[i] = cut(packs[i], next[i], shifts[i]);
  }
  put_quads(job, micro, packs, shared);
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) {  // packs that reach beyond the tensor: what lies inside is loaded by elements
    if (whole[i] || micro.row + i >= tile.rows) continue;
    const T* from = in + start_of(i);
    for (int j = 0; j < n && micro.column + j < tile.columns; ++j) {
      const int row_byte = (micro.row + i) * static_cast<int>(sizeof(T));
      *reinterpret_cast<T*>(shared + job.place(micro.column + j, row_byte)) = from[j];
    }
  }
}

/// Rows at any address: the lanes of a warp take single elements side by side, each of four rows.
template <class T>
SINTER_HOST_DEVICE inline void load_elements(const TileJob& job, const Tile& tile, int thread, const T* in,
                                             std::byte* shared) {
  constexpr int kQuads = Pack<T>::kSize;  // of a thread
  const int log_columns = job.log_column_packs + job.log_pack;
  Quad<T> quads[size_t{kQuads}];
  SINTER_UNROLL
  for (int i = 0; i < kQuads; ++i) {
    const int item = thread + i * kTileThreads;
    const int column = item & ((1 << log_columns) - 1), row = (item >> log_columns) * 4;
    if (row >= tile.rows || column >= tile.columns) continue;
    SINTER_UNROLL
    for (int k = 0; k < 4; ++k) {  // rows beyond the last one are loaded as the last one
      const int64_t at = tile.row + smaller(row + k, tile.rows - 1);
      quads[i].at[k] = load_element(in + tile.in + job.rows.locate<false>(at) + column);
    }
  }
  SINTER_UNROLL
  for (int i = 0; i < kQuads; ++i) {
    const int item = thread + i * kTileThreads;
    put_quad(job, item & ((1 << log_columns) - 1), (item >> log_columns) * 4, quads[i], shared);
  }
}

}  // namespace detail

/// Puts a thread's part of a tile into shared memory, which holds kTilePacks packs.
template <class T, bool kShifted, bool kSeveral>
SINTER_HOST_DEVICE inline void load_tile(const TileJob& job, const Tile& tile, int thread, const T* in,
                                         std::byte* shared) {
  if constexpr (!kShifted) {
    detail::load_packs<T, kSeveral>(job, tile, thread, in, shared);
  } else if constexpr (loads_elements(sizeof(T), kSeveral)) {
    detail::load_elements(job, tile, thread, in, shared);
  } else {
    detail::load_cut<T, kSeveral>(job, tile, thread, in, shared);
  }
}

/// Stores a thread's part of a tile once all threads have loaded theirs.
template <class T, bool kShifted, bool kSeveral>
SINTER_HOST_DEVICE inline void store_tile(const TileJob& job, const Tile& tile, int thread,
                                          const std::byte* shared, T* out) {
  constexpr int n = Pack<T>::kSize;
  const int row_packs = 1 << job.log_row_packs;
  SINTER_UNROLL
  for (int i = 0; i < kTilePacks / kTileThreads; ++i) {
    const int item = thread + i * kTileThreads;
    const int column = item >> job.log_row_packs, pack = item & (row_packs - 1);
    if (column >= tile.columns) return;
    const int64_t start = tile.out + job.columns.locate<kSeveral>(tile.column + column);
    const auto read = [&](int at) {
      return *reinterpret_cast<const Pack<T>*>(shared + job.place(column, at * 16));
    };
    if constexpr (!kShifted) {
      if (pack * n < tile.rows) store_pack(out + start + pack * n, read(pack));
    } else {
      // Every aligned pack is stored by the tile in whose first row_step rows it begins; the elements before
      // a column's first aligned pack go with it.
      const int shift = job.output.ahead<T>(start), first = pack * n + shift;
      const Pack<T> low = read(pack);
      const Pack<T> value = cut(low, read(smaller(pack + 1, row_packs - 1)), shift);
      if (pack == 0 && tile.row == 0 && shift > 0) {
        store_some(out + start, low, 0, smaller(shift, tile.rows));
      }
      if (pack * n >= job.row_step || first >= tile.rows) continue;
      if (first + n <= tile.rows) {
        store_pack(out + start + first, value);
      } else {
        store_some(out + start + first, value, 0, tile.rows - first);
      }
    }
  }
}

}  // namespace sinter::ops
