#include <algorithm>
#include <bit>
#include <cstdlib>

#include <sinter/core/base/error.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace {

// A side with fewer bytes is extended by the axis before it, so that runs fill the memory's sectors.
constexpr int64_t kEnoughBytes = 128;
// Up to this length, runs that do not begin at multiples of 16 bytes are taken as one piece of memory.
constexpr int64_t kMostFlatBytes = 256;
// Matrices up to this size share a tile.
constexpr int64_t kMostMatrixBytes = kTilePacks * 16 / 4;

/// ceil(log2(count)).
int log2_ceil(int64_t count) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1)));
}

struct Planner {
  const PermutePlan& plan;
  int size;          ///< bytes of an element
  int pack;          ///< elements of a pack
  int first_row;     ///< output axes from here on are rows
  int first_column;  ///< input axes from here on are columns
  int64_t rows = 1, columns = 1;

  Planner(const PermutePlan& permute_plan, int element_bytes)
      : plan(permute_plan),
        size(element_bytes),
        pack(16 / element_bytes),
        first_row(permute_plan.rank - 1),
        first_column(permute_plan.rank - 1) {
    rows = plan.extents[static_cast<size_t>(input_axis(first_row))];
    columns = plan.extents[static_cast<size_t>(first_column)];
    while (first_row > 0 && input_axis(first_row - 1) < first_column &&
           extends(rows, extent(input_axis(first_row - 1)))) {
      rows *= extent(input_axis(--first_row));
    }
    while (first_column > 0 && !is_row(first_column - 1) && extends(columns, extent(first_column - 1))) {
      columns *= extent(--first_column);
    }
  }

  /// True if a side of `count` elements is short and `more` axes leave its indices below 2^31.
  bool extends(int64_t count, int64_t more) const {
    return count * size < kEnoughBytes && count * more <= INT32_MAX;
  }
  int input_axis(int output_axis) const { return plan.axes[static_cast<size_t>(output_axis)]; }
  int output_axis(int input) const {
    return static_cast<int>(std::find(plan.axes.begin(), plan.axes.end(), input) - plan.axes.begin());
  }
  bool is_row(int input) const { return output_axis(input) >= first_row; }
  int64_t extent(int input) const { return plan.extents[static_cast<size_t>(input)]; }

  void fill_axes(TileJob& job) const {
    job.row_count = rows;
    job.column_count = columns;
    job.total = 1;
    for (int i = 0; i < plan.rank; ++i) {
      const int axis = input_axis(i);
      job.total *= extent(axis);
      if (i >= first_row) {
        job.rows.add(extent(axis), plan.input_stride(axis));
      } else if (axis < first_column) {
        job.outer_in.add(extent(axis), plan.input_stride(axis));
        job.outer_out.add(extent(axis), plan.output_stride(i));
      }
    }
    for (int axis = first_column; axis < plan.rank; ++axis) {
      job.columns.add(extent(axis), plan.output_stride(output_axis(axis)));
    }
  }
};

template <class Divide>
bool divide_by(const AxisGroup<Divide>& group, int64_t pack) {
  return std::all_of(group.strides, group.strides + group.rank,
                     [&](int64_t stride) { return stride % pack == 0; });
}

int log2_packs(int pack) {
  return 10 - log2_ceil(pack);
}
static_assert(kTilePacks == 1 << 10);

/// Both sides as near to a square as they fill.
void choose_shape(TileJob& job, int pack, bool shifted_output) {
  const int both = log2_packs(pack);
  const int row_need = log2_ceil((job.row_count + pack - 1) / pack + (shifted_output ? 1 : 0));
  const int column_need = log2_ceil((job.column_count + pack - 1) / pack);
  int column_packs = both / 2;
  if (const char* text = std::getenv("SINTER_TILE_COLUMNS"))
    column_packs = std::clamp(std::atoi(text), 0, both);
  if (column_need < column_packs) {
    column_packs = column_need;
  } else if (row_need < both - column_packs) {
    column_packs = both - row_need;
  }
  job.log_column_packs = column_packs;
  job.log_row_packs = both - column_packs;
}

void set_tiles(TileJob& job, int pack, int64_t outer) {
  job.log_warp_rows = std::min(2, log2_ceil(pack) + job.log_row_packs);
  job.key_shift = std::max(log2_ceil(pack), 3 - job.log_row_packs);
  job.row_tiles = cuda::WideDivide((job.row_count + job.row_step - 1) / job.row_step);
  job.column_tiles = cuda::WideDivide((job.column_count + job.column_step - 1) / job.column_step);
  job.tiles = outer * ((job.row_count + job.row_step - 1) / job.row_step) *
              ((job.column_count + job.column_step - 1) / job.column_step);
}

}  // namespace

TileJob plan_tiles(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output) {
  Planner planner(plan, element_bytes);
  const int pack = planner.pack;
  TileJob job;
  planner.fill_axes(job);
  job.input_phase = static_cast<int>(input % 16) / element_bytes;
  job.output_phase = static_cast<int>(output % 16) / element_bytes;
  const bool aligned_input = input % 16 == 0 && job.column_count % pack == 0 && divide_by(job.rows, pack) &&
                             divide_by(job.outer_in, pack);
  const bool aligned_output = output % 16 == 0 && job.row_count % pack == 0 && divide_by(job.columns, pack) &&
                              divide_by(job.outer_out, pack);
  const bool single = job.rows.rank == 1 && job.columns.rank == 1;
  const bool flat_input = single && !aligned_input && job.rows.strides[0] == job.column_count &&
                          job.column_count * element_bytes < kMostFlatBytes;
  const bool flat_output = single && !aligned_output && job.columns.strides[0] == job.row_count &&
                           job.row_count * element_bytes < kMostFlatBytes;
  const int both = log2_packs(pack);
  const int64_t outer = job.total / (job.row_count * job.column_count);
  if (plan.kind == PermutePlan::Kind::kTranspose && outer > 1 &&
      job.row_count * job.column_count * element_bytes <= kMostMatrixBytes) {
    const int64_t matrix_rows = job.row_count;
    const int log_columns = log2_ceil((job.column_count + pack - 1) / pack);
    const int64_t held = (int64_t{pack} << (both - log_columns)) / matrix_rows;
    if (log_columns <= both && held >= 2) {
      job.input = job.output = TileSide::kFlat;
      job.log_column_packs = log_columns;
      job.log_row_packs = both - log_columns;
      job.flat_rows = cuda::FastDivide(static_cast<uint32_t>(matrix_rows));
      job.flat_columns = cuda::FastDivide(static_cast<uint32_t>(job.column_count));
      job.row_count *= outer;
      job.outer_in = job.outer_out = {};
      job.row_step = job.tile_rows = static_cast<int>(held * matrix_rows);
      job.column_step = pack << log_columns;
      set_tiles(job, pack, 1);
      return job;
    }
  }
  if (flat_input && !(flat_output && job.row_count < job.column_count)) {
    job.input = TileSide::kFlat;
    job.output = TileSide::kShifted;
    job.log_column_packs = log2_ceil((job.column_count + pack - 1) / pack);
    job.log_row_packs = both - job.log_column_packs;
    job.flat_columns = cuda::FastDivide(static_cast<uint32_t>(job.column_count));
  } else if (flat_output) {
    job.input = TileSide::kShifted;
    job.output = TileSide::kFlat;
    job.log_row_packs = log2_ceil((job.row_count + pack - 1) / pack);
    job.log_column_packs = both - job.log_row_packs;
    job.flat_rows = cuda::FastDivide(static_cast<uint32_t>(job.row_count));
  } else {
    job.input = job.output = aligned_input && aligned_output ? TileSide::kAligned : TileSide::kShifted;
    choose_shape(job, pack, !aligned_output);
  }
  job.tile_rows = pack << job.log_row_packs;
  job.column_step = pack << job.log_column_packs;
  job.row_step = job.output == TileSide::kShifted && !aligned_output ? job.tile_rows - pack : job.tile_rows;
  if (const char* text = std::getenv("SINTER_TILE_ROWS_FIRST")) job.rows_first = std::atoi(text) != 0;
  set_tiles(job, pack, outer);
  return job;
}

}  // namespace sinter::ops
