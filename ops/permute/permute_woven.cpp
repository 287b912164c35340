// Which woven tiles a permutation on a GPU is cut into: host logic, so that tests need no GPU.
#include <algorithm>
#include <bit>
#include <cmath>

#include <sinter/ops/permute/permute_sides.h>
#include <sinter/ops/permute/permute_woven_cuda.h>

namespace sinter::ops {
namespace {

using namespace tiling;

// Of a tile: more where runs begin anywhere, so that fewer sectors are shared. Small tensors are cut into
// about kLeastTiles tiles.
constexpr int64_t kTileBytes = 16384, kShiftedTileBytes = 24576, kLeastTileBytes = 4096, kLeastTiles = 768;
// Runs of both tensors are to have that much, if possible.
constexpr int64_t kWantedRunBytes = 512;
// Rows take in more axes up to this, so that few packs are cut at their ends.
constexpr int64_t kWantedRowBytes = 256;
// Of the table of places, and of a block.
constexpr int64_t kMostRows = 4096, kMostSharedBytes = 64 << 10;
// Up to this, a tile takes an axis whole that makes the runs of both tensors longer.
constexpr int64_t kMostWholeBytes = 36864;
// Tiles of rows and columns are thin if they are smaller, or what follows each other in one tensor is
// shorter. Small tensors have shorter runs in L2.
constexpr int64_t kThinTileBytes = 4096, kThinRunBytes = 64, kThinSmallRunBytes = 32,
                  kMostSmallBytes = 16 << 20;

class WovenPlanner {
 public:
  WovenPlanner(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output)
      : plan_(plan),
        size_(element_bytes),
        pack_(16 / element_bytes),
        aligned_input_(input % 16 == 0),
        aligned_output_(output % 16 == 0) {
    for (int axis = 0; axis < plan.rank; ++axis) total_ *= plan_.extent(axis);
    job_.input = {total_, static_cast<int>(input % 16) / element_bytes};
    job_.output = {total_, static_cast<int>(output % 16) / element_bytes};
    job_.log_pack = log2_ceil(pack_);
  }

  std::optional<WovenJob> make() {
    if (plan_.rank < 3) return std::nullopt;
    grow();
    take_roles();
    number_tiles();
    look_at_alignment();
    choose_threads();
    if (job_.rows.step > kMostRows || job_.shared_bytes() > kMostSharedBytes || job_.tiles > INT32_MAX) {
      return std::nullopt;
    }
    return job_;
  }

 private:
  /// The last axes of one tensor that are in the tile.
  struct Side {
    int first;               ///< the first of them
    bool is_closed = false;  ///< no more can follow, since that one is cut
    int64_t run = 1;         ///< how many elements follow each other
  };

  int64_t& held(int axis) { return held_[static_cast<size_t>(axis)]; }
  int axis_at(const Side& side, int place) const { return &side == &in_ ? place : plan_.input_axis(place); }
  bool is_open(const Side& side) const { return side.first > 0 && !side.is_closed; }
  bool in_run(int axis) const { return axis >= in_.first; }

  /// Both sides go on past what the tile holds by now.
  void settle() {
    for (Side* side : {&in_, &out_}) {
      while (is_open(*side) && held(axis_at(*side, side->first - 1)) > 0) {
        const int axis = axis_at(*side, --side->first);
        side->run *= held(axis);
        side->is_closed = held(axis) < plan_.extent(axis);
      }
    }
  }

  /// About `share` of an axis, `room` at most: whole packs, so that runs begin at multiples of 16 bytes where
  /// they can.
  int64_t cut(int64_t extent, int64_t share, int64_t room) const {
    const int64_t packs = (share + pack_ / 2) / pack_ * pack_;
    if (packs == 0 || packs >= extent || 4 * packs > 5 * room) return even_step_below(extent, share);
    return divide_up(even_step_below(extent, packs), pack_) * pack_;
  }

  /// Takes more of an axis that is cut. The other side may have made do with it, so that both begin anew.
  bool widen(int64_t room, int64_t& tile) {
    for (int axis = 0; axis < plan_.rank; ++axis) {
      const int64_t had = held(axis), most = had * room;
      if (had == 0 || had == plan_.extent(axis)) continue;
      const int64_t has =
          plan_.extent(axis) <= most ? plan_.extent(axis) : cut(plan_.extent(axis), most, most);
      if (has <= had) continue;
      held(axis) = has;
      tile = tile / had * has;
      in_ = out_ = {.first = plan_.rank};
      settle();
      return true;
    }
    return false;
  }

  /// Takes axes into the tile, those of the side with shorter runs first.
  void grow() {
    in_.first = out_.first = plan_.rank;
    const auto fair =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(total_ * size_ / kLeastTiles)));
    const bool is_odd =
        plan_.extent(plan_.rank - 1) % pack_ != 0 || plan_.extent(axis_at(out_, plan_.rank - 1)) % pack_ != 0;
    const int64_t most = is_odd ? kShiftedTileBytes : kTileBytes;
    const int64_t elements = std::clamp(fair, kLeastTileBytes, most) / size_;
    int64_t tile = 1;
    while (elements / tile >= 2) {
      const int64_t room = elements / tile;
      if (!is_open(in_) && !is_open(out_)) {
        if (!widen(room, tile)) break;
        continue;
      }
      const bool takes_input = is_open(in_) && (!is_open(out_) || in_.run <= out_.run);
      Side& side = takes_input ? in_ : out_;
      const Side& other = takes_input ? out_ : in_;
      const int axis = axis_at(side, side.first - 1);
      int64_t share = room;
      const bool serves_both = is_open(other) && axis_at(other, other.first - 1) == axis;
      if (!serves_both && is_open(other) && other.run * size_ < kWantedRunBytes) {
        // What makes both as long as each other once the tile is full.
        share = std::llround(std::sqrt(static_cast<double>(room) * static_cast<double>(other.run) /
                                       static_cast<double>(side.run)));
        share = std::clamp<int64_t>(share, 2, room);
      }
      const bool whole = plan_.extent(axis) <= share ||
                         (serves_both && elements * size_ >= kTileBytes &&
                          plan_.extent(axis) <= kMostWholeBytes / (tile * size_)) ||
                         (plan_.extent(axis) <= room && 4 * plan_.extent(axis) <= 5 * share);
      held(axis) = whole ? plan_.extent(axis) : cut(plan_.extent(axis), share, room);
      tile *= held(axis);
      settle();
    }
  }

  /// Makes runs, rows and columns out of the axes of the tile.
  void take_roles() {
    int first_row = plan_.rank;
    int64_t rows = 1;
    const auto take_row = [&] { rows *= held(plan_.input_axis(--first_row)); };
    for (int axis = 0; axis < in_.first; ++axis) {
      while (held(axis) > 0 && plan_.output_axis(axis) < first_row) take_row();
    }
    while (first_row > out_.first && rows * size_ < kWantedRowBytes) take_row();
    add_runs(first_row);
    for (int place = first_row; place < plan_.rank; ++place) {
      const int axis = plan_.input_axis(place);
      job_.row_axes.add(held(axis), role(axis));
      take_into(job_.rows, axis);
    }
    const auto add_columns = [&](bool cut) {
      for (int place = 0; place < first_row; ++place) {
        const int axis = plan_.input_axis(place);
        if (held(axis) == 0 || (held(axis) < plan_.extent(axis)) != cut) continue;
        job_.column_axes.add(held(axis), role(axis));
        take_into(job_.columns, axis);
      }
    };
    add_columns(true);  // first, so that the last tile holds the first columns of others
    add_columns(false);
    const int last = job_.column_axes.rank - 1;
    job_.joined = job_.rows.step == job_.rows.last && job_.rows.step >= pack_ && last >= 0 &&
                  job_.column_axes.axes[last].out_stride == job_.rows.step;
  }

  /// The axes of the tile outside runs number them: all of these are rows.
  void add_runs(int first_row) {
    for (int axis = in_.first; axis < plan_.rank; ++axis) take_into(job_.length, axis);
    int64_t apart = 1;
    for (int place = plan_.rank - 1; place >= first_row; --place) {
      const int axis = plan_.input_axis(place);
      if (in_run(axis)) continue;
      runs_apart_[static_cast<size_t>(axis)] = apart;
      apart *= held(axis);
    }
    for (int place = first_row; place < plan_.rank; ++place) {
      const int axis = plan_.input_axis(place);
      if (in_run(axis)) continue;
      job_.run_axes.add(held(axis), plan_.input_stride(axis));
      take_into(job_.runs, axis);
    }
    if (job_.run_axes.rank == 0) job_.run_axes.add(1, 0);
  }

  WovenAxes::Axis role(int axis) const {
    WovenAxes::Axis role;
    role.out_stride = plan_.output_stride(plan_.output_axis(axis));
    if (in_run(axis)) {
      role.in_run = static_cast<int>(plan_.input_stride(axis));
    } else {
      role.runs = static_cast<int>(runs_apart_[static_cast<size_t>(axis)]);
      role.shift = static_cast<int>(plan_.input_stride(axis) % pack_);
    }
    return role;
  }

  /// Multiplies a side by what the tile holds of an axis; the one that is cut comes first or is the
  /// outermost.
  void take_into(WovenSide& side, int axis) {
    const int64_t count = divide_up(plan_.extent(axis), held(axis));
    side.last = static_cast<int>((plan_.extent(axis) - (count - 1) * held(axis)) * side.last);
    side.step = static_cast<int>(held(axis) * side.step);
    if (count == 1) return;
    side.count = count;
    cut_axis_of(side) = axis;
  }

  int& cut_axis_of(const WovenSide& side) {
    return &side == &job_.rows      ? cut_axes_[0]
           : &side == &job_.columns ? cut_axes_[1]
           : &side == &job_.runs    ? cut_axes_[2]
                                    : cut_axes_[3];
  }

  /// Axes that are not in the tile as a whole, in the output's order.
  void number_tiles() {
    for (int place = 0; place < plan_.rank; ++place) {
      const int axis = plan_.input_axis(place);
      if (held(axis) == plan_.extent(axis)) continue;
      const int64_t step = std::max<int64_t>(1, held(axis)), count = divide_up(plan_.extent(axis), step);
      for (WovenSide* side : {&job_.rows, &job_.columns, &job_.runs, &job_.length}) {
        if (cut_axis_of(*side) == axis) side->outer = job_.outer.rank;
      }
      job_.outer.add(count, step * plan_.input_stride(axis), step * plan_.output_stride(place));
      job_.tiles *= count;
    }
  }

  /// Whether runs of both tensors begin at multiples of 16 bytes.
  void look_at_alignment() {
    const auto divides = [&](int64_t stride) { return stride % pack_ == 0; };
    aligned_input_ = aligned_input_ && job_.run_axes.all_divide_by(pack_);
    for (int i = 0; i < job_.column_axes.rank; ++i) {
      aligned_output_ = aligned_output_ && divides(job_.column_axes.axes[i].out_stride);
    }
    for (int i = 0; i < job_.outer.rank; ++i) {
      aligned_input_ = aligned_input_ && divides(job_.outer.axes[i].in_stride);
      aligned_output_ = aligned_output_ && divides(job_.outer.axes[i].out_stride);
    }
    job_.whole_packs = aligned_output_ && divides(job_.rows.step) && divides(job_.rows.last);
  }

  void choose_threads() {
    const int64_t length = job_.length.step + (aligned_input_ ? 0 : pack_ - 1);
    const int64_t packs = divide_up(length, pack_);
    job_.pitch = static_cast<int>((packs | 1) * 16);  // so that runs begin in different banks
    job_.image_bytes = job_.runs.step * job_.pitch;
    job_.log_band = std::min(5, log2_ceil(packs));
    while (job_.log_band < kLogWovenThreads && (job_.runs.step << job_.log_band) < 1 << kLogWovenThreads &&
           (1 << job_.log_band) < packs) {
      ++job_.log_band;
    }
    const int packs_at_once =
        std::min(kLogWovenThreads, log2_ceil(std::max<int64_t>(1, job_.rows.step / pack_)));
    job_.log_lanes = std::min(job_.whole_packs ? 3 : 4, packs_at_once);
    const int columns_at_once = std::max(kLogWovenThreads - packs_at_once, 5 - job_.log_lanes);
    job_.log_columns = std::min(columns_at_once, log2_ceil(job_.columns.step));
  }

  const PermutePlan& plan_;
  const int64_t size_, pack_;
  bool aligned_input_, aligned_output_;
  int64_t total_ = 1;
  Side in_, out_;
  std::array<int64_t, kMaxRank> held_{}, runs_apart_{};  ///< by input axis: of the axis, of runs
  std::array<int, 4> cut_axes_{-1, -1, -1, -1};          ///< of rows, columns, runs, a run
  WovenJob job_;
};

/// Of the runs of both tensors that lie in one tile of rows and columns: neighbouring rows or columns may
/// follow each other.
int64_t thinnest_run(const PermutePlan& plan, const TileJob& tiles) {
  int64_t input_run = tiles.column_count, output_run = tiles.row_count;
  if (tiles.rows.axes[tiles.rows.rank - 1].stride == input_run) {
    input_run *= plan.extent(plan.input_axis(plan.rank - 1));
  }
  if (tiles.columns.axes[tiles.columns.rank - 1].stride == output_run) {
    output_run *= plan.extent(plan.rank - 1);
  }
  return std::min(input_run, output_run);
}

}  // namespace

std::optional<WovenJob> plan_woven(const PermutePlan& plan, int element_bytes, uintptr_t input,
                                   uintptr_t output) {
  return WovenPlanner(plan, element_bytes, input, output).make();
}

std::optional<WovenJob> choose_woven(const PermutePlan& plan, const TileJob& tiles, int element_bytes,
                                     uintptr_t input, uintptr_t output) {
  const bool is_tiny = tiles.row_count < divide_up(kThinTileBytes, tiles.column_count * element_bytes);
  if (!is_tiny && tiles.kind != TileKind::kSeveralAxes) return std::nullopt;
  const bool is_idle = tiles.row_count < 16 / element_bytes;  // a column has not even a pack
  const bool is_small = tiles.input.total * element_bytes < kMostSmallBytes;
  const int64_t thin = is_small ? kThinSmallRunBytes : kThinRunBytes;
  if (!is_idle && !is_tiny && thinnest_run(plan, tiles) * element_bytes >= thin) return std::nullopt;
  return plan_woven(plan, element_bytes, input, output);
}

}  // namespace sinter::ops
