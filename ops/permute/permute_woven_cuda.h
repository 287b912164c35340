// Permuting through shared memory where the axes of rows and of columns are woven into each other: the last
// axes of the input and the last axes of the output are not apart, so that tiles of rows and columns
// (permute_tiles_cuda.h) would be thin.
//
// A tile is a range of some axes: the last ones of the input, which make **runs** that are loaded whole, and
// the last ones of the output. Its elements are numbered anew for the output: **rows** run along the last
// axes of the output, so that a column is contiguous there, and all axes that are not in runs are among them;
// **columns** are the rest. The place of an element in the image of the runs is then the sum of its row's,
// for which there is a table, and its column's.
#pragma once

#include <optional>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/permute/permute_packs_cuda.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>
#include <sinter/ops/permute/plan/permute_plan.h>

namespace sinter::ops {

inline constexpr int kLogWovenThreads = 8;

/// Axes within a tile that one index runs over, the last one fastest.
struct WovenAxes {
  struct Axis {
    cuda::FastDivide extent;  ///< but of the first axis
    int64_t out_stride = 0;
    int in_run = 0;  ///< how far neighbours are apart within a run, 0 if in different ones
    int runs = 0;    ///< and how many runs, 0 if in one
    int shift = 0;   ///< elements modulo a pack that their runs are apart in the input
  };
  int rank = 0;
  Axis axes[kMaxRank];

  void add(int64_t extent, const Axis& axis) {
    axes[rank] = axis;
    axes[rank++].extent = cuda::FastDivide(static_cast<uint32_t>(extent));
  }
};

/// A tile: where it begins in both tensors, and what it holds of its axes.
struct WovenTile {
  int64_t in = 0, out = 0;
  int rows = 0, columns = 0, runs = 0, length = 0;  ///< `length`: elements of a run
};

/// What tiles hold along one side: those at the end of the axis that is cut may hold less.
struct WovenSide {
  int step = 1, last = 1;  ///< of a tile, of the last one
  int64_t count = 1;       ///< tiles
  int outer = -1;          ///< the axis of the outer ones that counts them
};

/// A permutation as woven tiles. Offsets and strides are counted in elements.
struct WovenJob {
  int64_t tiles = 1;
  PackSpace input, output;
  int log_pack = 0;
  WovenSide rows, columns, runs, length;
  int pitch = 0;  ///< bytes from run to run in the image
  int image_bytes = 0;
  int log_band = 0;                    ///< 2^log_band threads copy a run
  int log_lanes = 0, log_columns = 0;  ///< lanes share a column, a block takes so many columns at once
  bool whole_packs = false;            ///< columns consist of aligned packs
  bool joined = false;                 ///< a column may begin in the output where the one before ends
  SideAxes run_axes;
  WovenAxes row_axes, column_axes;
  OuterAxes outer;  ///< number the tiles, in the output's order

  SINTER_HOST_DEVICE WovenTile tile(int64_t index) const {
    WovenTile tile{0, 0, rows.step, columns.step, runs.step, length.step};
    SINTER_KEEP_LOOP
    for (int axis = outer.rank - 1; axis >= 0; --axis) {
      int64_t at = 0;
      index = outer.axes[axis].extent.divide(index, at);
      tile.in += at * outer.axes[axis].in_stride;
      tile.out += at * outer.axes[axis].out_stride;
      const auto take = [&](const WovenSide& side, int& taken) {
        if (axis == side.outer && at == side.count - 1) taken = side.last;
      };
      take(rows, tile.rows);
      take(columns, tile.columns);
      take(runs, tile.runs);
      take(length, tile.length);
    }
    return tile;
  }

  /// Where the table has row `row`: those a pack apart lie in different banks.
  SINTER_HOST_DEVICE int place_index(int row) const { return row + (row >> log_pack); }

  /// Of a block.
  int64_t shared_bytes() const {
    return image_bytes + (place_index(rows.step) + 1) * static_cast<int64_t>(sizeof(int));
  }
};

/// The plan's permutation of elements of `element_bytes` bytes at these addresses in woven tiles; none for
/// fewer than three axes, or if the table of places would be large. Not for a copy.
std::optional<WovenJob> plan_woven(const PermutePlan& plan, int element_bytes, uintptr_t input,
                                   uintptr_t output);

/// The same; none as well if `tiles`, the plan's tiles of rows and columns, are not thin.
std::optional<WovenJob> choose_woven(const PermutePlan& plan, const TileJob& tiles, int element_bytes,
                                     uintptr_t input, uintptr_t output);

namespace detail {

/// Where a column begins.
struct WovenColumn {
  int64_t out = 0;
  int place = 0;  ///< elements behind the places of rows

  SINTER_HOST_DEVICE WovenColumn(const WovenJob& job, int column) {
    auto rest = static_cast<uint32_t>(column);
    SINTER_KEEP_LOOP
    for (int i = job.column_axes.rank - 1; i >= 0; --i) {
      uint32_t at = rest;
      if (i > 0) rest = job.column_axes.axes[i].extent.divide(rest, at);
      out += static_cast<int64_t>(at) * job.column_axes.axes[i].out_stride;
      place += static_cast<int>(at) * job.column_axes.axes[i].in_run;
    }
  }
};

/// Notes where the first column's rows are in the image.
template <class T>
SINTER_HOST_DEVICE inline void note_places(const WovenJob& job, const WovenTile& tile, int thread,
                                           int* places) {
  constexpr int size = static_cast<int>(sizeof(T));
  const int first_shift = job.input.behind<T>(tile.in);
  SINTER_KEEP_LOOP
  for (int row = thread; row < tile.rows; row += 1 << kLogWovenThreads) {
    auto rest = static_cast<uint32_t>(row);
    int run = 0, in_run = 0, shift = first_shift;
    SINTER_KEEP_LOOP
    for (int i = job.row_axes.rank - 1; i >= 0; --i) {
      const WovenAxes::Axis& axis = job.row_axes.axes[i];
      uint32_t at = rest;
      if (i > 0) rest = axis.extent.divide(rest, at);
      run += static_cast<int>(at) * axis.runs;
      in_run += static_cast<int>(at) * axis.in_run;
      shift += static_cast<int>(at) * axis.shift;
    }
    places[job.place_index(row)] = run * job.pitch + ((shift & (Pack<T>::kSize - 1)) + in_run) * size;
  }
}

/// Every column of a tile as a run of the output, in aligned packs of rows.
template <class T>
SINTER_HOST_DEVICE inline void store_woven_packs(const WovenJob& job, const WovenTile& tile, int thread,
                                                 const std::byte* image, const int* table, T* out) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  const int lane = thread & ((1 << job.log_lanes) - 1), others = thread >> job.log_lanes;
  const int first_column = others & ((1 << job.log_columns) - 1);
  const int first_pack = lane + (others >> job.log_columns << job.log_lanes);
  SINTER_KEEP_LOOP
  for (int pack = first_pack; pack * n + n <= tile.rows; pack += 1 << (kLogWovenThreads - job.log_columns)) {
    int places[size_t{n}] = {};
    int known = -1;
    SINTER_KEEP_LOOP
    for (int column = first_column; column < tile.columns; column += 1 << job.log_columns) {
      const WovenColumn at(job, column);
      const int64_t start = tile.out + at.out;
      const int shift = job.output.ahead<T>(start), row = pack * n + shift;
      if (row + n > tile.rows) continue;
      if (shift != known) {
        known = shift;
        SINTER_UNROLL
        for (int j = 0; j < n; ++j) places[j] = table[job.place_index(row + j)];
      }
      const std::byte* from = image + at.place * size;
      store_pack<false>(out + start + row,
                        collect<T>([&](int j) { return *reinterpret_cast<const T*>(from + places[j]); }));
    }
  }
}

/// The elements before a column's first aligned pack and behind its last; where another column of the tile
/// follows at once, the pack that both share.
template <class T>
SINTER_HOST_DEVICE inline void store_woven_ends(const WovenJob& job, const WovenTile& tile, int thread,
                                                const std::byte* image, const int* table, T* out) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  SINTER_KEEP_LOOP
  for (int column = thread; column < tile.columns; column += 1 << kLogWovenThreads) {
    const WovenColumn at(job, column);
    WovenColumn next = at;
    bool has_previous = false, has_next = false;
    if (job.joined && column > 0) {
      has_previous = WovenColumn(job, column - 1).out + tile.rows == at.out;
    }
    if (job.joined && column + 1 < tile.columns) {
      next = WovenColumn(job, column + 1);
      has_next = at.out + tile.rows == next.out;
    }
    const int64_t start = tile.out + at.out;
    const int shift = job.output.ahead<T>(start), rest = shift + (tile.rows - shift) / n * n;
    const auto read = [&](int row) {
      const bool beyond = row >= tile.rows;
      const int place = table[job.place_index(beyond ? row - tile.rows : row)];
      return *reinterpret_cast<const T*>(image + place + (beyond ? next.place : at.place) * size);
    };
    const auto store = [&](int begin, int end) {
      SINTER_KEEP_LOOP
      for (int row = begin; row < end; ++row) out[start + row] = read(row);
    };
    if (!has_previous) store(0, smaller(shift, tile.rows));
    if (tile.rows <= shift || rest == tile.rows) continue;
    if (has_next) {
      store_pack<false>(out + start + rest, collect<T>([&](int j) { return read(rest + j); }));
    } else {
      store(rest, tile.rows);
    }
  }
}

}  // namespace detail

/// Copies a thread's part of a tile's runs into the image, and notes where rows lie there; wait_for_copies()
/// and a barrier follow. The image of a run keeps its addresses modulo 16.
template <class T>
SINTER_HOST_DEVICE inline void load_woven(const WovenJob& job, const WovenTile& tile, int thread, const T* in,
                                          std::byte* image) {
  constexpr int n = Pack<T>::kSize, size = static_cast<int>(sizeof(T));
  const int width = 1 << job.log_band, lane = thread & (width - 1);
  SINTER_KEEP_LOOP
  for (int run = thread >> job.log_band; run < tile.runs; run += 1 << (kLogWovenThreads - job.log_band)) {
    const int64_t at = tile.in + job.run_axes.locate<true>(run);
    const int shift = job.input.behind<T>(at);
    std::byte* to = image + run * job.pitch + shift * size;
    SINTER_KEEP_LOOP
    for (int first = lane * n - shift; first < tile.length; first += width * n) {
      if (at + first >= 0 && at + first + n <= job.input.total) {
        copy_pack(to + first * size, in + at + first);
        continue;
      }
      SINTER_KEEP_LOOP  // at the ends of the tensor
          for (int j = 0; j < n; ++j) {
        if (first + j < 0 || first + j >= tile.length) continue;
        *reinterpret_cast<T*>(to + (first + j) * size) = in[at + first + j];
      }
    }
  }
  detail::note_places<T>(job, tile, thread, reinterpret_cast<int*>(image + job.image_bytes));
}

/// Stores a thread's part of a tile once all threads have loaded theirs.
template <class T>
SINTER_HOST_DEVICE inline void store_woven(const WovenJob& job, const WovenTile& tile, int thread,
                                           const std::byte* image, T* out) {
  const int* table = reinterpret_cast<const int*>(image + job.image_bytes);
  detail::store_woven_packs(job, tile, thread, image, table, out);
  if (!job.whole_packs) detail::store_woven_ends(job, tile, thread, image, table, out);
}

}  // namespace sinter::ops
