// Which tiles a permutation on a GPU is cut into: host logic, so that tests need no GPU.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include <sinter/ops/permute/permute_sides.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace {

using namespace tiling;

// Up to this length, a side whose runs do not begin at multiples of 16 bytes is taken whole.
constexpr int64_t kMostThinBytes = 256;
// Where rows and columns make less than this, they take in more axes, beyond what fills sectors: a block for
// every few elements has nothing to wait for memory with. Pieces need half as much.
constexpr int64_t kLeastSidesBytes = 8192;
// Of a tile. Where rows or columns are shifted, neighbouring tiles load the same sectors: the fewer the
// better, but for what the cache keeps from one tile to the next, if there are more than the GPU holds at
// once.
constexpr int64_t kTileBytes = 16384, kShiftedTileBytes = 32768, kShiftedShortTileBytes = 24576;
// Of aligned elements of 4 bytes and more, in tensors of more than one wave.
constexpr int64_t kWideTileBytes = 8192;
// Where all columns are in so few tiles, these come first, of so many tiles of rows: rows of the input are
// then read while what tiles share of them is in L2.
constexpr int64_t kFewColumnTiles = 16, kGroupRowTiles = 64;
// So many columns of bytes are cut, since tiles of all would hold short runs of the output.
constexpr int64_t kLeastWideColumns = 128;
constexpr int64_t kSectorBytes = 32;  // of the memory
// Lanes that take packs of one column together: 128 bytes, more where neighbouring tiles share sectors. Tiles
// hold whole multiples of that, but for those of small tensors and very large ones.
constexpr int64_t kLanes = 8, kShiftedLanes = 16;
constexpr int64_t kLeastLineTileBytes = 8192, kMostLineTileBytes = 49152;
constexpr int64_t kMostOneWaveBytes = 32 << 20;
// Tiles of at least such tensors with at least so many columns, which leave but 128 bytes to the runs of a
// tile, cut at least such runs of the output at sectors.
constexpr int64_t kLeastSectorTotal = 8 << 20, kLeastCutBytes = 512, kLeastCutColumns = 128;
// Small tensors are cut into about as many tiles.
constexpr int64_t kLeastTiles = 768, kLeastTileBytes = 2048;

cuda::FastDivide divide_by(int64_t count) {
  return cuda::FastDivide(static_cast<uint32_t>(count));
}

/// What an image skips between packs of rows, so that these begin in neighbouring packs of the banks.
int skip_of(int pitch, int log_pack) {
  return (16 - (pitch << log_pack)) & 127;
}

/// Wavefronts in which a warp reads the first elements of its packs of few rows, whose columns follow each
/// other in the output: lanes wait for each other that read different words of a bank.
int count_wavefronts(int rows, int log_pack, int pitch, int skip, int element_bytes) {
  std::array<int, 32> words, counts{};
  words.fill(-1);
  for (int lane = 0; lane < 32; ++lane) {
    const int index = lane << log_pack, row = index % rows;
    const int word = (row * pitch + (row >> log_pack) * skip + index / rows * element_bytes) / 4;
    const auto bank = static_cast<size_t>(word % 32);
    if (words[bank] != word) ++counts[bank];
    words[bank] = word;
  }
  return *std::max_element(counts.begin(), counts.end());
}

/// Where lanes walk through few rows, at least job.pitch apart: the pitch at which fewest of them meet, of
/// those that cost up to `most_bytes`.
int choose_spread_pitch(const TileJob& job, int element_bytes, int64_t most_bytes) {
  const auto rows = static_cast<int>(job.inner.divisor());
  int chosen = job.pitch, fewest = INT32_MAX;
  for (int pitch = job.pitch; pitch < job.pitch + 128; pitch += 16) {
    if (job.row_step * (pitch - job.pitch) > most_bytes) break;
    const int skip = skip_of(pitch, job.log_pack);
    const int meeting = count_wavefronts(rows, job.log_pack, pitch, skip, element_bytes);
    if (meeting >= fewest) continue;
    fewest = meeting;
    chosen = pitch;
  }
  return chosen;
}

/// Makes a job out of a plan.
class TilePlanner {
 public:
  TilePlanner(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output)
      : plan_(plan), size_(element_bytes), pack_(16 / element_bytes) {
    job_.log_pack = log2_ceil(pack_);
    for (int axis = 0; axis < plan.rank; ++axis) total_ *= plan_.extent(axis);
    job_.input = {total_, static_cast<int>(input % 16) / element_bytes};
    job_.output = {total_, static_cast<int>(output % kSectorBytes) / element_bytes};
    job_.cut_unit = static_cast<int>(pack_);
    aligned_input_ = input % 16 == 0;
    aligned_output_ = output % 16 == 0;
    set_tile_bytes(kTileBytes);
  }

  TileJob make() {
    if (!take_matrices()) take_sides();
    choose_pitch();
    const int64_t run_packs = divide_up(job_.column_step * size_ + (aligned_input_ ? 0 : 15), 16);
    job_.long_rows = job_.piece || run_packs >= threads() / 2;
    // The rows of a thread have to be a multiple of a pack apart.
    const int whole_band = log_threads(job_.kind) - 1;
    job_.log_band =
        !job_.piece
            ? std::min({log_threads(job_.kind) - job_.log_pack, 4, std::max(0, log2_ceil(run_packs) - 1)})
            : whole_band;
    const int64_t rows = job_.rows_loaded;
    job_.image_bytes =
        static_cast<int>(round_up(rows * job_.pitch + (rows >> job_.log_pack) * job_.skip + 32, 16));
    const int64_t row_tiles = divide_up(job_.row_count, job_.row_step);
    const int64_t column_tiles = divide_up(job_.column_count, job_.column_step);
    const bool few = column_tiles > 1 && column_tiles <= kFewColumnTiles;
    const int64_t group = few ? even_step_below(row_tiles, kGroupRowTiles) : row_tiles;
    const int64_t groups = divide_up(row_tiles, group);
    job_.group_rows = static_cast<int>(group);
    job_.row_tiles = divide_by(group);
    job_.group_tiles = divide_by(group * column_tiles);
    job_.matrix_tiles = groups * group * column_tiles;
    job_.outer_count = total_ / (job_.row_count * job_.column_count);
    return job_;
  }

 private:
  int threads() const { return 1 << log_threads(job_.kind); }

  void set_tile_bytes(int64_t bytes) {
    const auto fair =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(total_ * size_ / kLeastTiles)));
    tile_bytes_ = std::clamp(fair, kLeastTileBytes, bytes);
  }

  /// How far apart rows lie in the image.
  void choose_pitch() {
    const auto bytes = static_cast<int>(job_.column_step * size_);
    job_.pitch = bytes;
    if (job_.piece) return;
    job_.skip = 0;
    if (!aligned_input_ && job_.kind == TileKind::kSeveralAxes) {
      job_.pitch = static_cast<int>(round_up(bytes + 15, 16));
    } else if (!aligned_input_) {  // the image keeps addresses modulo 16
      const auto stride = static_cast<int>(job_.rows.axes[0].stride % 16 * size_);
      job_.pitch = bytes + 15 + ((stride - bytes - 15) & 15);
    }
    if (job_.kind == TileKind::kWholeColumns) {
      job_.pitch = choose_spread_pitch(job_, static_cast<int>(size_), tile_bytes_ / 4);
    }
    job_.skip = skip_of(job_.pitch, job_.log_pack);
  }

  /// Small matrices that follow each other in both tensors: those of which a thread's packs hold the same
  /// pattern, of more than one element, or are few.
  bool take_matrices() {
    const int last = plan_.rank - 1;
    if (pack_ == 1 || last < 2 || plan_.input_axis(last) != last - 1 || plan_.input_axis(last - 1) != last ||
        plan_.input_axis(last - 2) != last - 2) {
      return false;
    }
    const int64_t batch = plan_.extent(plan_.rank - 3), rows = plan_.extent(plan_.rank - 2),
                  columns = plan_.extent(plan_.rank - 1), elements = rows * columns;
    const int64_t matrices = even_step_below(batch, tile_bytes_ / (elements * size_));
    if (steady_step(elements) == 0 && !is_short_piece(matrices * elements, rows, columns)) return false;
    job_.kind = TileKind::kWholeColumns;
    job_.piece = true;
    aligned_input_ = false;
    job_.rows.add(batch * rows, columns);
    job_.row_count = batch * rows;
    job_.column_count = columns;
    job_.row_step = job_.rows_loaded = static_cast<int>(matrices * rows);
    job_.column_step = static_cast<int>(columns);
    job_.out_row_tile = matrices * elements;
    for (int i = 0; i < plan_.rank - 3; ++i) {
      const int axis = plan_.input_axis(i);
      job_.outer.add(plan_.extent(axis), plan_.input_stride(axis), plan_.output_stride(i));
    }
    choose_walk(rows, columns, elements, elements * size_);
    return true;
  }

  /// Whether a thread has one or two packs of a piece of whole matrices, so that no pattern is worth keeping,
  /// and its warp reads them without much waiting: measured against woven tiles of one matrix each.
  bool is_short_piece(int64_t elements, int64_t rows, int64_t columns) const {
    constexpr int kMostWavefronts = 4;
    return elements <= 2 * threads() * pack_ &&
           count_wavefronts(static_cast<int>(rows), job_.log_pack, static_cast<int>(columns * size_), 0,
                            static_cast<int>(size_)) <= kMostWavefronts;
  }

  /// Packs from one of a thread's packs of a piece to the next, so that both hold the same pattern of
  /// `period` elements; 0: there are too few threads for that.
  int64_t steady_step(int64_t period) const {
    const int64_t packs = period / std::gcd(period, pack_), step = threads() / packs * packs;
    // That many threads have work; others save more, the more elements they would have to look for.
    const bool most = size_ > 2 ? 4 * step >= 3 * threads() : (size_ == 2 ? 2 : 3) * step >= threads();
    return most ? step : 0;
  }

  /// How threads walk through a piece; the next pattern is pattern_bytes further on in the image.
  void choose_walk(int64_t inner, int64_t middle, int64_t period, int64_t pattern_bytes) {
    job_.inner = divide_by(inner);
    job_.middle = divide_by(middle);
    const int64_t step = steady_step(period);
    job_.pack_step = static_cast<int>(step != 0 ? step : threads());
    job_.place_step = static_cast<int>(step * pack_ / period * pattern_bytes);
  }

  bool is_thin(int64_t count) const { return count * size_ < kMostThinBytes && count * size_ % 16 != 0; }

  /// Transposes that are not small.
  void take_sides() {
    Sides sides(plan_);
    bool few_rows = is_thin(sides.rows) && plan_.output_axis(plan_.rank - 1) == plan_.rank - 2 &&
                    sides.columns >= sides.rows;
    const bool all_meet = 16 * sides.columns % 128 == 0;  // lanes, which are packs of rows apart, in one bank
    const bool is_wide = size_ == 1 && sides.columns >= kLeastWideColumns;
    job_.piece = !few_rows && is_thin(sides.columns) && !all_meet && !is_wide &&
                 plan_.input_axis(plan_.rank - 1) == plan_.rank - 2;
    const int64_t least = std::min(tile_bytes_, kLeastSidesBytes) / size_;
    if ((few_rows || job_.piece) && !sides.reaches(least / 2) &&
        (sides.more_rows() || sides.more_columns())) {
      few_rows = job_.piece = false;
    }
    if (!few_rows && !job_.piece) sides.extend(size_, least);
    take_axes(sides);
    if (few_rows) {
      job_.kind = TileKind::kWholeColumns;
      job_.row_step = job_.rows_loaded = static_cast<int>(sides.rows);
      const int64_t columns =
          even_step(sides.columns, std::max<int64_t>(1, tile_bytes_ / (sides.rows * size_)));
      job_.column_step = static_cast<int>(round_up(columns, pack_));
      job_.out_column_tile = job_.column_step * sides.rows;
      choose_walk(sides.rows, int64_t{1} << 31, sides.rows, size_);
    } else {
      choose_columns();
    }
  }

  void take_axes(const Sides& sides) {
    job_.row_count = sides.rows;
    job_.column_count = sides.columns;
    for (int i = sides.first_row; i < plan_.rank; ++i) {
      job_.rows.add(plan_.extent(plan_.input_axis(i)), plan_.input_stride(plan_.input_axis(i)));
    }
    for (int axis = sides.first_column; axis < plan_.rank; ++axis) {
      job_.columns.add(plan_.extent(axis), plan_.output_stride(plan_.output_axis(axis)));
    }
    for (int i = 0; i < sides.first_row; ++i) {
      const int axis = plan_.input_axis(i);
      if (axis >= sides.first_column) continue;
      job_.outer.add(plan_.extent(axis), plan_.input_stride(axis), plan_.output_stride(i));
    }
    if (job_.rows.rank > 1 || job_.columns.rank > 1) job_.kind = TileKind::kSeveralAxes;
    aligned_input_ = aligned_input_ && sides.columns % pack_ == 0 && job_.rows.all_divide_by(pack_);
    aligned_output_ = aligned_output_ && sides.rows % pack_ == 0 && job_.columns.all_divide_by(pack_);
    for (int i = 0; i < job_.outer.rank; ++i) {
      aligned_input_ = aligned_input_ && job_.outer.axes[i].in_stride % pack_ == 0;
      aligned_output_ = aligned_output_ && job_.outer.axes[i].out_stride % pack_ == 0;
    }
  }

  /// Tiles whose columns are runs of the output.
  void choose_columns() {
    job_.whole_packs = aligned_output_;
    job_.joined = !aligned_output_ && job_.kind == TileKind::kColumns && !job_.piece &&
                  job_.columns.axes[0].stride == job_.row_count && job_.row_count >= 2 * pack_;
    if (job_.joined) aligned_input_ = false;  // rows are read from the next column on too
    if (job_.kind == TileKind::kColumns && !job_.piece && !(aligned_input_ && aligned_output_)) {
      job_.kind = TileKind::kShiftedColumns;
      const bool one_wave = total_ * size_ <= kMostOneWaveBytes;
      if (one_wave || size_ <= 2) set_tile_bytes(one_wave ? kShiftedTileBytes : kShiftedShortTileBytes);
    } else if (job_.kind == TileKind::kSeveralAxes && !aligned_output_ && size_ <= 2) {
      set_tile_bytes(kShiftedShortTileBytes);
    }
    if (cuts_sectors()) {
      job_.kind = TileKind::kShiftedColumns;
      job_.whole_packs = false;
      job_.cut_unit = static_cast<int>(kSectorBytes / size_);
      set_tile_bytes(kShiftedTileBytes);
    }
    const int64_t most = std::min(job_.column_count, choose_row_bytes() / size_), tile = tile_bytes_ / size_;
    const int64_t rows =
        std::min(round_up(job_.row_count, pack_), std::max(tile / most / pack_ * pack_, pack_));
    const int64_t columns = job_.piece ? job_.column_count : even_step(job_.column_count, tile / rows);
    job_.column_step = static_cast<int>(aligned_input_ ? round_up(columns, pack_) : columns);
    choose_pitch();
    // Where rows are short, what lies between them in the image counts too.
    const int64_t fit = std::min(tile / job_.column_step, 2 * tile_bytes_ / (job_.pitch + job_.skip / pack_));
    const int64_t near = row_step_near(std::max(pack_, fit)), most_rows = most_rows_in_memory();
    job_.row_step = static_cast<int>(
        near <= most_rows ? near : round_up(even_step_below(job_.row_count, most_rows), pack_));
    job_.rows_loaded = job_.row_step + job_.cut_unit - static_cast<int>(aligned_output_ ? pack_ : 1);
    job_.out_row_tile = job_.row_step;
    join_several_axes();
    choose_lanes();
  }

  /// What a tile is to hold of a row of the input, and how large it is then; measured.
  int64_t choose_row_bytes() {
    const bool several = job_.kind == TileKind::kSeveralAxes;
    if (job_.piece) return 256;
    if (size_ == 1) {
      if (!several || !aligned_output_) return 128;
      set_tile_bytes(kShiftedTileBytes);  // places of rows are sought once for many columns
      return 256;
    }
    if (size_ == 2) {
      if (several) return aligned_output_ ? 128 : 192;
      return job_.kind == TileKind::kShiftedColumns && tile_bytes_ == kShiftedShortTileBytes ? 192 : 256;
    }
    if (job_.kind != TileKind::kColumns || total_ * size_ <= kMostOneWaveBytes) return 256;
    set_tile_bytes(kWideTileBytes);
    return size_ == 4 ? 128 : 256;
  }

  /// Whether short, aligned runs of the output would begin in the middle of a sector: each of two tiles then
  /// writes a part of it.
  bool cuts_sectors() const {
    if (job_.kind != TileKind::kColumns || job_.piece || size_ > 2 || !aligned_input_ || !aligned_output_ ||
        job_.column_count < kLeastCutColumns || job_.row_count * size_ < kLeastCutBytes ||
        total_ * size_ < kLeastSectorTotal) {
      return false;
    }
    int64_t strides = job_.columns.axes[0].stride | job_.output.phase;
    for (int i = 0; i < job_.outer.rank; ++i) strides |= job_.outer.axes[i].out_stride;
    return strides % (kSectorBytes / size_) != 0;
  }

  /// Whole packs of rows for which a block has memory: of few columns, tables and what pads their rows count
  /// more than these.
  int64_t most_rows_in_memory() const {
    constexpr int64_t kMostMemory = 81920;  // about, of a block
    const int64_t table = job_.kind == TileKind::kSeveralAxes ? 13 : 0;
    return kMostMemory / (job_.pitch + job_.skip / pack_ + table) / pack_ * pack_;
  }

  /// About `fit` rows: as many packs as lanes take of a column at once. Where runs of the output are aligned,
  /// tiles of them end at lines, or at least at sectors: one that two tiles share is written in two parts,
  /// each of which costs a whole one.
  int64_t row_step_near(int64_t fit) const {
    const int64_t even = even_step(job_.row_count, fit);
    if (even >= job_.row_count) return round_up(job_.row_count, pack_);
    const int64_t lanes = job_.kind == TileKind::kShiftedColumns ? kShiftedLanes : kLanes,
                  unit = lanes * pack_;
    const int64_t step = std::max<int64_t>(1, (2 * fit + unit) / (2 * unit)) * unit;
    const int64_t idle = round_up(job_.row_count, step) - job_.row_count;
    const bool fits = step <= 2 * fit && step * (job_.pitch + job_.skip / pack_) <= kMostLineTileBytes;
    if (tile_bytes_ >= kLeastLineTileBytes && fits && 8 * idle <= job_.row_count) return step;
    return round_up(even, aligned_output_ ? kSectorBytes / size_ : pack_);
  }

  /// In tiles of all rows over several axes: the column behind which one begins that follows it in the
  /// output.
  void join_several_axes() {
    if (job_.kind != TileKind::kSeveralAxes || aligned_output_) return;
    if (job_.row_count < pack_ || job_.row_count > job_.row_step) return;
    int64_t apart = 1;
    for (int axis = job_.columns.rank - 1; axis >= 0; --axis) {
      if (job_.columns.axes[axis].stride == job_.row_count && apart < job_.column_step) {
        job_.next_column = static_cast<int>(apart);
      }
      if (axis > 0) apart *= job_.columns.axes[axis].extent.divisor();
    }
  }

  void choose_lanes() {
    job_.log_lanes = std::min(log2_ceil(job_.kind == TileKind::kShiftedColumns ? kShiftedLanes : kLanes),
                              log2_ceil(job_.row_step / pack_));
    int columns_at_once = log_threads(job_.kind) - job_.log_lanes;
    if (job_.kind == TileKind::kSeveralAxes &&
        aligned_output_) {  // what a thread knows of a pack serves columns
      const int packs_at_once = log2_ceil(job_.row_step / pack_);
      columns_at_once = std::max(log_threads(job_.kind) - packs_at_once, 5 - job_.log_lanes);
    }
    job_.log_columns = std::min(columns_at_once, log2_ceil(job_.column_step));
    job_.log_warp = std::min(5 - job_.log_lanes, job_.log_columns);
    // Lanes that read different columns meet no bank if what they read lies in different words of 16 bytes:
    // neighbours are `step` elements apart there.
    const int64_t column_stride = job_.columns.axes[job_.columns.rank - 1].stride;
    const int64_t step = (1 - job_.rows.axes[0].stride % pack_ * (column_stride % pack_)) & (pack_ - 1);
    if (step == 0) return;
    const int words = 2 - log2_ceil(size_) - std::countr_zero(static_cast<uint64_t>(step));
    job_.log_spread = std::clamp(words, 0, job_.log_columns - job_.log_warp);
  }

  const PermutePlan& plan_;
  const int64_t size_, pack_;
  int64_t total_ = 1, tile_bytes_ = 0;
  bool aligned_input_ = false, aligned_output_ = false;
  TileJob job_;
};

}  // namespace

TileJob plan_tiles(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output) {
  return TilePlanner(plan, element_bytes, input, output).make();
}

}  // namespace sinter::ops
