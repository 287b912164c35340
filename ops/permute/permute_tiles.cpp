#include <algorithm>
#include <bit>

#include <sinter/ops/permute/permute_thin_cuda.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace {

// A side with fewer bytes is extended by the axis before it, so that runs fill the memory's sectors.
constexpr int64_t kEnoughBytes = 128;
// Up to this length, a side whose runs do not begin at multiples of 16 bytes is taken whole.
constexpr int64_t kMostThinBytes = 256;
// Matrices up to this size share a tile.
constexpr int64_t kMostMatrixBytes = kTilePacks * 16 / 4;

/// ceil(log2(count)).
int log2_ceil(int64_t count) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1)));
}

int64_t divide_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

PackSpace space_at(uintptr_t address, int element_bytes, int64_t total) {
  return {total, static_cast<int>(address % 16) / element_bytes};
}

bool all_divide_by(const int64_t* strides, int rank, int64_t pack) {
  return std::all_of(strides, strides + rank, [&](int64_t stride) { return stride % pack == 0; });
}

/// The plan's axes by role: rows are the last axes of the output, columns those of the input, the others are
/// outer.
struct Sides {
  const PermutePlan& plan;
  int first_row, first_column;  ///< from here on axes of the output are rows, axes of the input columns
  int64_t rows, columns;        ///< their extents

  explicit Sides(const PermutePlan& permute_plan)
      : plan(permute_plan), first_row(plan.rank - 1), first_column(plan.rank - 1) {
    rows = extent(input_axis(first_row));
    columns = extent(first_column);
  }

  int64_t extent(int axis) const { return plan.extents[static_cast<size_t>(axis)]; }
  int input_axis(int output_axis) const { return plan.axes[static_cast<size_t>(output_axis)]; }
  int output_axis(int input_axis) const {
    return static_cast<int>(std::find(plan.axes.begin(), plan.axes.end(), input_axis) - plan.axes.begin());
  }
  int64_t total() const {
    int64_t count = 1;
    for (int axis = 0; axis < plan.rank; ++axis) count *= extent(axis);
    return count;
  }
  int64_t outer() const { return total() / (rows * columns); }

  /// Takes axes into sides that are short, as long as their indices stay below 2^31.
  void extend(int element_bytes) {
    const auto extends = [&](int64_t count, int64_t more) {
      return count * element_bytes < kEnoughBytes && count * more <= INT32_MAX;
    };
    while (first_row > 0 && input_axis(first_row - 1) < first_column &&
           extends(rows, extent(input_axis(first_row - 1)))) {
      rows *= extent(input_axis(--first_row));
    }
    while (first_column > 0 && output_axis(first_column - 1) < first_row &&
           extends(columns, extent(first_column - 1))) {
      columns *= extent(--first_column);
    }
  }

  template <class Job>
  void add_outer(Job& job) const {
    for (int i = 0; i < first_row; ++i) {
      const int axis = input_axis(i);
      if (axis >= first_column) continue;
      job.outer.add(extent(axis), plan.input_stride(axis), plan.output_stride(i));
    }
  }
};

/// As near to a square as both sides fill; at least four rows, which is what a thread loads.
void choose_shape(TileJob& job, int pack, bool aligned_output) {
  const int both = log2_ceil(kTilePacks / pack);
  const int least_rows = std::max(0, 2 - log2_ceil(pack));
  const int row_need = log2_ceil(divide_up(job.row_count, pack) + (aligned_output ? 0 : 1));
  const int column_need = log2_ceil(divide_up(job.column_count, pack));
  int column_packs = both / 2;
  if (column_need < column_packs) {
    column_packs = column_need;
  } else if (row_need < both - column_packs) {
    column_packs = both - std::max(row_need, least_rows);
  }
  job.log_column_packs = std::min(column_packs, both - least_rows);
  job.log_row_packs = both - job.log_column_packs;
}

/// Small matrices that follow each other in both tensors.
bool plan_matrices(const PermutePlan& plan, int element_bytes, ThinJob& job) {
  const int64_t bytes = plan.rows * plan.columns * element_bytes;
  if (plan.kind != PermutePlan::Kind::kTranspose || plan.batch == 1 || bytes > kMostMatrixBytes) return false;
  job.side = ThinSide::kBoth;
  job.thin = static_cast<int>(plan.columns);
  job.matrix_rows = static_cast<int>(plan.rows);
  job.length = plan.batch * plan.rows;
  job.step = job.loaded = static_cast<int>(kTilePacks * 16 / bytes * plan.rows);
  return true;
}

/// Few rows or few columns, whose elements alternate in one of the tensors.
bool plan_runs(const PermutePlan& plan, int element_bytes, uintptr_t output, ThinJob& job) {
  const Sides sides(plan);
  const int row_axis = sides.input_axis(plan.rank - 1), column_axis = plan.rank - 1;
  const auto is_thin = [&](int64_t count) {
    return count * element_bytes < kMostThinBytes && count * element_bytes % 16 != 0;
  };
  const bool few_rows = is_thin(sides.rows) && sides.output_axis(column_axis) == plan.rank - 2;
  const bool few_columns = is_thin(sides.columns) && row_axis == plan.rank - 2;
  if (!few_rows && !few_columns) return false;
  job.side = few_rows && (!few_columns || sides.rows < sides.columns) ? ThinSide::kRows : ThinSide::kColumns;
  sides.add_outer(job);
  const int pack = 16 / element_bytes;
  const bool rows = job.side == ThinSide::kRows;
  job.thin = static_cast<int>(rows ? sides.rows : sides.columns);
  job.length = rows ? sides.columns : sides.rows;
  job.stride = rows ? plan.input_stride(row_axis) : plan.output_stride(sides.output_axis(column_axis));
  const bool aligned = output % 16 == 0 && job.stride % pack == 0 &&
                       all_divide_by(job.outer.out_strides, job.outer.rank, pack);
  const int64_t most = kTilePacks * pack / job.thin / pack * pack;
  job.loaded = static_cast<int>(std::min<int64_t>(most, divide_up(job.length, pack) * pack + pack));
  job.step = rows || aligned ? job.loaded : job.loaded - pack;
  return true;
}

}  // namespace

TileJob plan_tiles(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output) {
  const int pack = 16 / element_bytes;
  Sides sides(plan);
  sides.extend(element_bytes);
  TileJob job;
  job.row_count = sides.rows;
  job.column_count = sides.columns;
  for (int i = sides.first_row; i < plan.rank; ++i) {
    job.rows.add(sides.extent(sides.input_axis(i)), plan.input_stride(sides.input_axis(i)));
  }
  for (int axis = sides.first_column; axis < plan.rank; ++axis) {
    job.columns.add(sides.extent(axis), plan.output_stride(sides.output_axis(axis)));
  }
  sides.add_outer(job);
  job.input = space_at(input, element_bytes, sides.total());
  job.output = space_at(output, element_bytes, sides.total());
  job.log_pack = log2_ceil(pack);
  job.first_pack = -job.input.phase & (pack - 1);
  job.last_pair = (job.input.total + job.input.phase) / pack * pack - job.input.phase - 2 * pack;
  const bool aligned_input = input % 16 == 0 && job.column_count % pack == 0 &&
                             all_divide_by(job.rows.strides, job.rows.rank, pack) &&
                             all_divide_by(job.outer.in_strides, job.outer.rank, pack);
  const bool aligned_output = output % 16 == 0 && job.row_count % pack == 0 &&
                              all_divide_by(job.columns.strides, job.columns.rank, pack) &&
                              all_divide_by(job.outer.out_strides, job.outer.rank, pack);
  job.several = job.rows.rank > 1 || job.columns.rank > 1;
  job.shifted = !aligned_input || !aligned_output;
  choose_shape(job, pack, aligned_output);
  // Columns that a warp writes at once have different keys, and so have those that share 128 bytes.
  const bool elements = job.shifted && loads_elements(static_cast<size_t>(element_bytes), job.several);
  job.key_shift = std::max(elements ? 0 : job.log_pack, 3 - job.log_row_packs);
  job.row_step = (pack << job.log_row_packs) - (aligned_output ? 0 : pack);
  const int64_t row_tiles = divide_up(job.row_count, job.row_step);
  const int64_t column_tiles = divide_up(job.column_count, pack << job.log_column_packs);
  job.row_tiles = cuda::WideDivide(row_tiles);
  job.column_tiles = cuda::WideDivide(column_tiles);
  job.tiles = sides.outer() * row_tiles * column_tiles;
  return job;
}

bool plan_thin(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output, ThinJob& job) {
  job = {};
  if (!plan_matrices(plan, element_bytes, job) && !plan_runs(plan, element_bytes, output, job)) return false;
  const Sides sides(plan);
  job.input = space_at(input, element_bytes, sides.total());
  job.output = space_at(output, element_bytes, sides.total());
  job.run_packs = cuda::FastDivide(static_cast<uint32_t>(std::max(1, job.step * element_bytes / 16)));
  job.divide_thin = cuda::FastDivide(static_cast<uint32_t>(job.thin));
  job.divide_rows = cuda::FastDivide(static_cast<uint32_t>(job.matrix_rows));
  const int64_t length_tiles = divide_up(job.length, job.step);
  job.length_tiles = cuda::WideDivide(length_tiles);
  job.tiles = length_tiles * (job.side == ThinSide::kBoth ? 1 : sides.outer());
  return true;
}

}  // namespace sinter::ops
