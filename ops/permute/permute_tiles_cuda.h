// Transposing through shared memory, 16 bytes at a time on both sides: which tile a block moves, and how its
// threads move it. Everything here runs on the host too, where the tests execute whole permutations with it.
//
// A permutation that moves the last axis is seen as matrices. Their columns run along the last axes of the
// input, so that a row is contiguous in the input; their rows run along the last axes of the output, so that
// a column is contiguous there. A block loads a tile of rows in packs of 16 bytes, scatters the elements over
// shared memory, where columns are contiguous, and stores packs of columns.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <sinter/core/base/shape.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/ops/permute/permute_plan.h>

#if defined(__CUDA_ARCH__)
#define SINTER_UNROLL _Pragma("unroll")
#else
#define SINTER_UNROLL
#endif

namespace sinter::ops {

inline constexpr int kTileThreads = 256;
inline constexpr int kTilePacks = 1024;  // of 16 bytes in shared memory; each thread moves four

/// 16 bytes of elements.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = static_cast<int>(16 / sizeof(T));
  T at[16 / sizeof(T)];
};

/// An element of 16 bytes.
struct alignas(16) Bits128 {
  uint64_t low, high;
};

/// How one side of the matrices is laid out in memory.
enum class TileSide : uint8_t {
  kAligned,  ///< every run (a row of the input, a column of the output) begins at a multiple of 16 bytes
  kShifted,  ///< runs begin anywhere: a pack is cut from two, and stores begin at the next multiple
  kFlat,     ///< runs are short and follow each other: a tile takes whole runs, as one piece of memory
};

/// Axes that one index runs over, the last one fastest, with the distance of neighbours in elements. The
/// index may be of any size for one axis, and below 2^31 for more if Divide is FastDivide.
template <class Divide>
struct AxisGroup {
  int rank = 0;
  Divide extents[kMaxRank];
  int64_t strides[kMaxRank] = {};

  void add(int64_t extent, int64_t stride) {
    if (rank > 0) extents[rank] = Divide(static_cast<DivideIndex>(extent));
    strides[rank++] = stride;
  }
  SINTER_HOST_DEVICE int64_t locate(int64_t index) const {
    int64_t offset = 0;
    if (rank > 1) {
      auto rest = static_cast<DivideIndex>(index);
      for (int axis = rank - 1; axis > 0; --axis) {
        DivideIndex at = 0;
        rest = extents[axis].divide(rest, at);
        offset += static_cast<int64_t>(at) * strides[axis];
      }
      index = static_cast<int64_t>(rest);
    }
    return offset + index * strides[0];
  }

 private:
  using DivideIndex = std::conditional_t<std::is_same_v<Divide, cuda::FastDivide>, uint32_t, int64_t>;
};

/// One tile: offsets of its first element in both tensors, its first row and column, and how many rows and
/// columns there are from there on (more than the tile holds if others follow).
struct Tile {
  int64_t in = 0, out = 0;
  int64_t row = 0, column = 0;
  int rows = 0, columns = 0;
};

/// A permutation as tiles. Offsets, strides, rows and columns are counted in elements; what goes to shared
/// memory is 2^log_row_packs packs of rows by 2^log_column_packs packs of columns.
struct TileJob {
  TileSide input = TileSide::kAligned, output = TileSide::kAligned;
  AxisGroup<cuda::FastDivide> rows, columns;        ///< strides in the input, strides in the output
  AxisGroup<cuda::WideDivide> outer_in, outer_out;  ///< the same axes with strides in either
  int64_t row_count = 1, column_count = 1;
  int64_t tiles = 0;
  cuda::WideDivide row_tiles, column_tiles;
  bool rows_first = true;             ///< neighbouring blocks take neighbouring tiles of rows
  int row_step = 0, column_step = 0;  ///< from tile to tile
  int tile_rows = 0;                  ///< that a tile loads: more than row_step if stores are shifted
  int log_row_packs = 0, log_column_packs = 0;
  int log_warp_rows = 0;  ///< rows that a warp loads side by side
  int key_shift = 0;
  int64_t total = 0;                         ///< elements of either tensor
  int input_phase = 0, output_phase = 0;     ///< elements from a multiple of 16 bytes to the tensor's first
  cuda::FastDivide flat_rows, flat_columns;  ///< row and column counts of one matrix, for kFlat

  SINTER_HOST_DEVICE Tile tile(int64_t task) const {
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
    tile.column = column_tile * column_step;
    tile.in = outer_in.locate(task) + tile.column;
    tile.out = outer_out.locate(task) + tile.row;
    tile.rows = limited(row_count - tile.row);
    tile.columns = limited(column_count - tile.column);
    return tile;
  }

  /// Where shared memory holds a pack of a column. The low bits are mixed with the column's number so that
  /// neither the scattered elements nor the packs of a warp meet in one bank.
  SINTER_HOST_DEVICE int place(int column, int row_pack) const {
    return ((column << log_row_packs) + row_pack) ^ ((column >> key_shift) & 7);
  }

 private:
  SINTER_HOST_DEVICE static int limited(int64_t count) {
    return static_cast<int>(count < (1 << 30) ? count : (1 << 30));
  }
};

/// The plan's permutation of elements of `element_bytes` bytes at these addresses, for plans that move the
/// last axis.
TileJob plan_tiles(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output);

namespace detail {

// ---- packs

template <class T>
SINTER_HOST_DEVICE inline Pack<T> load_pack(const T* from) {
#if defined(__CUDA_ARCH__)
  Pack<T> pack;
  const uint4 bits = __ldg(reinterpret_cast<const uint4*>(from));
  memcpy(&pack, &bits, sizeof(pack));
  return pack;
#else
  return *reinterpret_cast<const Pack<T>*>(from);
#endif
}

/// What is written is not read again here: it may leave the caches first.
template <class T>
SINTER_HOST_DEVICE inline void store_pack(T* to, const Pack<T>& pack) {
#if defined(__CUDA_ARCH__)
  uint4 bits;
  memcpy(&bits, &pack, sizeof(pack));
  __stcs(reinterpret_cast<uint4*>(to), bits);
#else
  *reinterpret_cast<Pack<T>*>(to) = pack;
#endif
}

/// The elements shift, ..., shift + kSize - 1 of two packs.
template <class T>
SINTER_HOST_DEVICE inline Pack<T> cut(const Pack<T>& low, const Pack<T>& high, int shift) {
  uint32_t words[8];
  memcpy(words, &low, 16);
  memcpy(words + 4, &high, 16);
  const int bytes = shift * static_cast<int>(sizeof(T));
  if constexpr (sizeof(T) <= 8) {
    for (int i = 0; i < 6; ++i) words[i] = (bytes & 8) != 0 ? words[i + 2] : words[i];
  }
  if constexpr (sizeof(T) <= 4) {
    for (int i = 0; i < 5; ++i) words[i] = (bytes & 4) != 0 ? words[i + 1] : words[i];
  }
  if constexpr (sizeof(T) <= 2) {
    const auto bits = static_cast<uint32_t>(bytes & 3) * 8;
    for (int i = 0; i < 4; ++i) {
#if defined(__CUDA_ARCH__)
      words[i] = __funnelshift_r(words[i], words[i + 1], bits);
#else
      words[i] = static_cast<uint32_t>(((uint64_t{words[i + 1]} << 32) | words[i]) >> bits);
#endif
    }
  }
  Pack<T> pack;
  memcpy(&pack, words, 16);
  return pack;
}

/// A pack that reaches beyond the tensor: only what lies inside is read.
template <class T>
SINTER_HOST_DEVICE inline Pack<T> load_edge(const T* in, int64_t at, int64_t total) {
  Pack<T> pack{};
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    if (at + j >= 0 && at + j < total) pack.at[j] = in[at + j];
  }
  return pack;
}

// ---- loading

/// Item `item` of a tile's input: eight neighbours along a row, four rows, then on; as far as there are as
/// many.
SINTER_HOST_DEVICE inline void input_place(const TileJob& job, int item, int& row, int& pack) {
  const int low = job.log_column_packs < 3 ? job.log_column_packs : 3;
  const int high = job.log_column_packs - low;
  const int block = item >> (low + job.log_warp_rows);
  pack = (item & ((1 << low) - 1)) | ((block & ((1 << high) - 1)) << low);
  row = ((item >> low) & ((1 << job.log_warp_rows) - 1)) | ((block >> high) << job.log_warp_rows);
}

/// Elements of one row from `column` on, a multiple of the pack's size, to their columns.
template <class T>
SINTER_HOST_DEVICE inline void scatter(const TileJob& job, int row, int column, const Pack<T>& pack,
                                       T* shared) {
  constexpr int n = Pack<T>::kSize;
  // job.place(column + j, row / n) in bytes: the columns of a pack share their key.
  const int key = ((column >> job.key_shift) & 7) << 4;
  const int first = (((column << job.log_row_packs) + row / n) << 4) + row % n * static_cast<int>(sizeof(T));
  SINTER_UNROLL
  for (int j = 0; j < n; ++j) {
    const int place = (first + (j << (job.log_row_packs + 4))) ^ key;
    *reinterpret_cast<T*>(reinterpret_cast<char*>(shared) + place) = pack.at[j];
  }
}

/// Where item `item` of a tile of runs begins in the input; false if the tile has no such item.
template <class T>
SINTER_HOST_DEVICE inline bool input_start(const TileJob& job, const Tile& tile, int item, int64_t& start) {
  int row = 0, pack = 0;
  input_place(job, item, row, pack);
  start = tile.in + job.rows.locate(tile.row + row) + pack * Pack<T>::kSize;
  return row < tile.rows && pack * Pack<T>::kSize < tile.columns;
}

template <class T, bool kShifted>
SINTER_HOST_DEVICE inline void load_runs(const TileJob& job, const Tile& tile, int thread, const T* in,
                                         T* shared) {
  constexpr int n = Pack<T>::kSize, kItems = kShifted ? 2 : 4;
  for (int first = thread; first < kTilePacks; first += kItems * kTileThreads) {
    Pack<T> low[kItems], high[kItems];
    int shifts[kItems] = {};
    SINTER_UNROLL
    for (int i = 0; i < kItems; ++i) {  // all loads are under way before the first is waited for
      int64_t start = 0;
      if (!input_start<T>(job, tile, first + i * kTileThreads, start)) continue;
      if constexpr (!kShifted) {
        low[i] = load_pack(in + start);
      } else {
        shifts[i] = static_cast<int>((start + job.input_phase) & (n - 1));
        start -= shifts[i];
        if (start >= 0 && start + n <= job.total) low[i] = load_pack(in + start);
        if (shifts[i] != 0 && start + 2 * n <= job.total) high[i] = load_pack(in + start + n);
      }
    }
    SINTER_UNROLL
    for (int i = 0; i < kItems; ++i) {
      int64_t start = 0;
      const int item = first + i * kTileThreads;
      if (!input_start<T>(job, tile, item, start)) continue;
      if constexpr (kShifted) {
        start -= shifts[i];
        if (start < 0 || start + n > job.total) low[i] = load_edge(in, start, job.total);
        if (shifts[i] != 0) {
          if (start + 2 * n > job.total) high[i] = load_edge(in, start + n, job.total);
          low[i] = cut(low[i], high[i], shifts[i]);
        }
      }
      int row = 0, pack = 0;
      input_place(job, item, row, pack);
      scatter(job, row, pack * n, low[i], shared);
    }
  }
}

template <class T>
SINTER_HOST_DEVICE inline void load_flat(const TileJob& job, const Tile& tile, int thread, const T* in,
                                         T* shared) {
  constexpr int n = Pack<T>::kSize, kItems = kTilePacks / kTileThreads;
  const int columns = static_cast<int>(job.column_count);
  const int count = (tile.rows < job.tile_rows ? tile.rows : job.tile_rows) * columns;
  const int64_t start = tile.in + job.rows.locate(tile.row);
  const int phase = static_cast<int>((start + job.input_phase) & (n - 1));
  for (int base = thread; base * n < count + phase; base += kItems * kTileThreads) {
    Pack<T> packs[kItems];
    SINTER_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int first = (base + i * kTileThreads) * n - phase;
      const int64_t at = start + first;
      if (first < count && at >= 0 && at + n <= job.total) packs[i] = load_pack(in + at);
    }
    SINTER_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int first = (base + i * kTileThreads) * n - phase;
      const int64_t at = start + first;
      if (first >= count) break;
      if (at < 0 || at + n > job.total) packs[i] = load_edge(in, at, job.total);
      uint32_t column = 0;
      int row =
          static_cast<int>(job.flat_columns.divide(static_cast<uint32_t>(first < 0 ? 0 : first), column));
      SINTER_UNROLL
      for (int j = 0; j < n; ++j) {
        if (first + j < 0 || first + j >= count) continue;
        shared[job.place(static_cast<int>(column), row / n) * n + row % n] = packs[i].at[j];
        if (++column == job.flat_columns.divisor()) {
          column = 0;
          ++row;
        }
      }
    }
  }
}

// ---- storing

template <class T>
SINTER_HOST_DEVICE inline Pack<T> shared_pack(const TileJob& job, int column, int row_pack, const T* shared) {
  Pack<T> pack;
  memcpy(&pack, __builtin_assume_aligned(shared + job.place(column, row_pack) * Pack<T>::kSize, 16), 16);
  return pack;
}

template <class T>
SINTER_HOST_DEVICE inline void store_some(T* to, const Pack<T>& pack, int begin, int end) {
  SINTER_UNROLL
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    if (j >= begin && j < end) to[j] = pack.at[j];
  }
}

template <class T, bool kShifted>
SINTER_HOST_DEVICE inline void store_runs(const TileJob& job, const Tile& tile, int thread, const T* shared,
                                          T* out) {
  constexpr int n = Pack<T>::kSize;
  const int row_packs = 1 << job.log_row_packs;
  for (int item = thread; item < kTilePacks; item += kTileThreads) {
    const int column = item >> job.log_row_packs, pack = item & (row_packs - 1);
    if (column >= tile.columns) continue;
    const int64_t start = tile.out + job.columns.locate(tile.column + column);
    if constexpr (!kShifted) {
      if (pack * n < tile.rows) store_pack(out + start + pack * n, shared_pack(job, column, pack, shared));
    } else {
      // Every aligned pack is stored by the tile in whose first row_step rows it begins.
      const int shift = static_cast<int>(-(start + job.output_phase) & (n - 1));
      const int first = pack * n + shift;
      Pack<T> value = shared_pack(job, column, pack, shared);
      if (pack == 0 && tile.row == 0 && shift > 0)
        store_some(out + start, value, 0, shift < tile.rows ? shift : tile.rows);
      if (pack * n >= job.row_step || first >= tile.rows) continue;
      if (shift > 0 && pack + 1 < row_packs)
        value = cut(value, shared_pack(job, column, pack + 1, shared), shift);
      if (first + n <= tile.rows) {
        store_pack(out + start + first, value);
      } else {
        store_some(out + start + first, value, 0, tile.rows - first);
      }
    }
  }
}

/// Columns that are whole in the tile are one piece of memory; with a flat input too, so are whole matrices.
template <class T, bool kMatrices>
SINTER_HOST_DEVICE inline void store_flat(const TileJob& job, const Tile& tile, int thread, const T* shared,
                                          T* out) {
  constexpr int n = Pack<T>::kSize;
  const auto rows = static_cast<int>(job.flat_rows.divisor()),
             columns = static_cast<int>(job.flat_columns.divisor());
  const int64_t start = tile.out + (kMatrices ? tile.row * (columns - 1) : job.columns.locate(tile.column));
  const int count = kMatrices ? (tile.rows < job.row_step ? tile.rows : job.row_step) * columns
                              : (tile.columns < job.column_step ? tile.columns : job.column_step) * rows;
  const int phase = static_cast<int>((start + job.output_phase) & (n - 1));
  for (int item = thread; item * n < count + phase; item += kTileThreads) {
    const int first = item * n - phase;
    uint32_t row = 0, column = job.flat_rows.divide(static_cast<uint32_t>(first < 0 ? 0 : first), row);
    int row_base = 0;
    if constexpr (kMatrices) row_base = rows * static_cast<int>(job.flat_columns.divide(column, column));
    Pack<T> pack;
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) {
      if (first + j < 0 || first + j >= count) continue;
      const int at = row_base + static_cast<int>(row);
      pack.at[j] = shared[job.place(static_cast<int>(column), at / n) * n + at % n];
      if (++row < job.flat_rows.divisor()) continue;
      row = 0;
      ++column;
      if (kMatrices && column == job.flat_columns.divisor()) {
        column = 0;
        row_base += rows;
      }
    }
    if (first >= 0 && first + n <= count) {
      store_pack(out + start + first, pack);
    } else {
      store_some(out + start + first, pack, first < 0 ? -first : 0, count - first);
    }
  }
}

}  // namespace detail

/// What one thread does before all threads of a block meet, and afterwards. `shared` holds kTilePacks packs.
template <class T, TileSide kInput>
SINTER_HOST_DEVICE inline void load_tile(const TileJob& job, const Tile& tile, int thread, const T* in,
                                         T* shared) {
  if constexpr (kInput == TileSide::kFlat) {
    detail::load_flat(job, tile, thread, in, shared);
  } else {
    detail::load_runs<T, kInput == TileSide::kShifted>(job, tile, thread, in, shared);
  }
}

template <class T, TileSide kInput, TileSide kOutput>
SINTER_HOST_DEVICE inline void store_tile(const TileJob& job, const Tile& tile, int thread, const T* shared,
                                          T* out) {
  if constexpr (kOutput == TileSide::kFlat) {
    detail::store_flat<T, kInput == TileSide::kFlat>(job, tile, thread, shared, out);
  } else {
    detail::store_runs<T, kOutput == TileSide::kShifted>(job, tile, thread, shared, out);
  }
}

}  // namespace sinter::ops
