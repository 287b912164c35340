// Permuting through shared memory, 16 bytes at a time on both sides: which tile a block moves.
//
// A permutation is seen as matrices. Their columns run along the last axes of the input, so that a row is
// contiguous in the input; their rows run along the last axes of the output, so that a column is contiguous
// there. Rows are copied into shared memory as they lie, whatever their alignment: the image of a row keeps
// its addresses modulo 16 (permute_load_cuda.h). Packs of the output are then collected from the image,
// element by element (permute_store_cuda.h).
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/ops/permute/permute_packs_cuda.h>
#include <sinter/ops/permute/plan/permute_plan.h>

namespace sinter::ops {

/// How the output takes a tile.
enum class TileKind : uint8_t {
  kColumns,         ///< every column is a run of the output; rows and columns are single axes
  kShiftedColumns,  ///< the same where runs begin anywhere, so that neighbouring tiles load the same
  kSeveralAxes,     ///< rows or columns over several axes
  kWholeColumns,    ///< short columns, one after the other: the tile is one piece of the output
};

/// log2 of a block's threads.
constexpr int log_threads(TileKind kind) {
  return kind == TileKind::kShiftedColumns || kind == TileKind::kSeveralAxes ? 8 : 7;
}

/// One tile: offsets of its first column in the input and of its first element in the output, its first row
/// and column, and how many rows and columns there are from there on (more than it holds if others follow).
struct Tile {
  int64_t in = 0, out = 0;
  int64_t row = 0, column = 0;
  int rows = 0, columns = 0;
};

/// A permutation as tiles. Offsets, strides, rows and columns are counted in elements. What all kernels read
/// stands together, before the axes, of which most are not there.
struct TileJob {
  TileKind kind = TileKind::kColumns;
  int64_t row_count = 1, column_count = 1;
  int64_t outer_count = 1, first_outer = 0;  ///< matrices, and where a launch begins
  int64_t matrix_tiles = 1;                  ///< of one matrix
  int group_rows = 0;                        ///< tiles of rows that come before those of the next columns
  cuda::FastDivide group_tiles, row_tiles;   ///< tiles of such a group, its tiles of rows
  int row_step = 0, column_step = 0;         ///< rows and columns of a tile
  int64_t out_row_tile = 0, out_column_tile = 0;  ///< from tile to tile of rows, of columns, in the output
  PackSpace input, output;
  int log_pack = 0;  ///< elements of a pack

  // The image of a tile: row r begins `pitch` bytes behind the row before, and every pack of rows skips some
  // more, so that rows a pack apart begin in neighbouring packs of the memory's banks.
  int rows_loaded = 0;  ///< more than row_step if columns are stored unaligned
  int pitch = 0, skip = 0;
  int image_bytes = 0;
  int log_band = 0;        ///< a band of 2 * 2^log_band packs of a row is copied at once
  bool piece = false;      ///< the rows of a tile follow each other in the input and in the image
  bool long_rows = false;  ///< all threads copy one row after the other

  // Columns: 2^log_lanes lanes take packs of rows of one column; from lane to lane columns are 2^log_spread
  // apart; a warp takes 2^log_warp columns at once, a block 2^log_columns.
  int log_lanes = 0, log_spread = 0, log_warp = 0, log_columns = 0;
  bool whole_packs = false;  ///< columns consist of aligned packs
  int cut_unit = 1;          ///< tiles cut columns at multiples of so many elements in memory
  bool joined = false;       ///< in the output a column begins where the one before ends
  /// Where columns run over several axes: the column that many further on begins there, but for the last
  /// ones; 0: none does.
  int next_column = 0;

  // Whole columns: how the output walks a tile, and what a thread does from one of its packs to the next.
  cuda::FastDivide inner, middle;  ///< rows of a matrix, its columns
  int pack_step = 0;               ///< to the pack that many further on
  int place_step = 0;              ///< which is that far in the image; 0: not always the same

  SideAxes rows, columns;  ///< strides in the input, strides in the output
  OuterAxes outer;

  /// Without rows if there is no such tile in the last group.
  SINTER_HOST_DEVICE Tile tile(uint32_t matrix_tile, int64_t matrix) const {
    uint32_t in_group = 0, row_tile = 0;
    const uint32_t group = group_tiles.divide(matrix_tile, in_group);
    const auto column_tile = static_cast<int>(row_tiles.divide(in_group, row_tile));
    row_tile += group * static_cast<uint32_t>(group_rows);
    Tile tile;
    tile.row = int64_t{row_step} * row_tile;
    tile.column = int64_t{column_step} * column_tile;
    outer.locate(matrix, tile.in, tile.out);
    tile.in += tile.column;
    tile.out += row_tile * out_row_tile + column_tile * out_column_tile;
    tile.rows = limited(row_count - tile.row);
    tile.columns = limited(column_count - tile.column);
    return tile;
  }

  /// True if the tile holds a column's last rows and the next column follows at once in the output: memory
  /// then holds that one's first rows too, behind the image.
  SINTER_HOST_DEVICE bool holds_next(const Tile& tile) const {
    return joined && tile.rows < row_step + (1 << log_pack) && tile.columns > 1;
  }

  /// Elements from the column that begins at `start` in the output to where a tile's first pack of it begins.
  SINTER_HOST_DEVICE int shift_of(int64_t start) const {
    return static_cast<int>(-(start + output.phase) & (cut_unit - 1));
  }

  /// Where TileMemory::places has row `row`: those a pack apart lie in different banks.
  SINTER_HOST_DEVICE int place_index(int row) const { return row + (row >> log_pack); }

  /// Where the image holds row `row`, if row 0 begins at byte `base`.
  SINTER_HOST_DEVICE int place(int row, int base) const {
    return base + row * pitch + (row >> log_pack) * skip;
  }
};

/// The plan's permutation of elements of `element_bytes` bytes at these addresses; not for a copy,
/// nor for a plan that keeps its last axis.
TileJob plan_tiles(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output);

/// The shared memory of a block: the image, and for kSeveralAxes tables, so that axes are divided once for a
/// row or column.
struct TileMemory {
  std::byte* image;
  int64_t* columns;  ///< where columns begin in the output
  int64_t* rows;     ///< where rows begin in the input, its complement at the tensor's ends
  int* places;       ///< where rows are in the image, at place_index(row)

  SINTER_HOST_DEVICE TileMemory(std::byte* memory, const TileJob& job)
      : image(memory),
        columns(reinterpret_cast<int64_t*>(memory + job.image_bytes)),
        rows(columns + job.column_step),
        places(reinterpret_cast<int*>(rows + job.rows_loaded)) {}
  static int64_t bytes(const TileJob& job) {
    const int next_rows = job.joined ? (1 << job.log_pack) : 0;
    constexpr auto kStart = static_cast<int64_t>(sizeof(int64_t)), kPlace = static_cast<int64_t>(sizeof(int));
    const int64_t tables =
        (job.column_step + job.rows_loaded) * kStart + job.place_index(job.rows_loaded) * kPlace;
    return job.image_bytes + next_rows * (job.pitch + job.skip) + 32 +
           (job.kind == TileKind::kSeveralAxes ? tables : 0);
  }
};

/// Where the image of a tile begins to hold it, unless its rows run over several axes: as far behind a
/// multiple of 16 bytes as the tile in the input.
template <class T>
SINTER_HOST_DEVICE inline int image_base(const TileJob& job, const Tile& tile) {
  return job.input.behind<T>(tile.in + job.rows.locate<false>(tile.row)) * static_cast<int>(sizeof(T));
}

template <class T>
SINTER_HOST_DEVICE inline T image_element(const std::byte* image, int place) {
  return *reinterpret_cast<const T*>(image + place);
}

}  // namespace sinter::ops
