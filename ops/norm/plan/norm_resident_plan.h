// How a GPU cuts a tensor that it keeps in shared memory between a normalisation's sums and its map. Pure
// arithmetic, without CUDA.
//
// The channels are cut into panels. A team of blocks that run at once takes a panel in, adds the sums of its
// members up, maps what it has kept, and goes on to the next. A panel is a matrix of `rows` rows of `columns`
// packs of 16 bytes, in which every element of a column belongs to one channel: under NHWC the neighbouring
// channels of a place; under NCHW the planes of an image's neighbouring channels, in whole or, of one
// channel, in pieces. A thread keeps its column and takes one row in `lanes` x `members` into each of its
// slots.
//
// Of a tensor that is too large, a panel's last rows are streamed: a thread reads those behind its slots'
// rows once for the sums, and again, the last first, for the map.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

/// What a GPU and a pass leave room for.
struct NormRoom {
  int processors = 0;         ///< 0 if blocks cannot wait for each other
  size_t shared_bytes = 0;    ///< that a block may have
  size_t shared_of_half = 0;  ///< the same with two blocks on a processor
  int tensors = 1;            ///< that are kept
  int element_bytes = 4;      ///< of their elements: 2 or 4
};

struct NormResidentPlan {
  static constexpr int kPackBytes = 16;
  static constexpr int kThreads = 512;       ///< of a block that has a processor for itself
  static constexpr int kHalfThreads = 256;   ///< of one that shares it with another
  static constexpr int kValues = 2;          ///< sums of a channel
  static constexpr int kBatch = 4;           ///< slots that a thread works on at a time
  static constexpr int kMostChannels = 128;  ///< of a panel: so many that each sum has a thread
  static constexpr int kMostSlots = 32;
  static constexpr int kParameterBytes = 16;  ///< that the map needs of a channel, at most
  static constexpr int kTurns = 2;            ///< panels of a team that the table has room for at a time

  int64_t panels = 0;      ///< 0: the tensor does not fit
  int threads = kThreads;  ///< of a block
  int64_t inner = 1;       ///< elements of a plane
  int64_t width = 0;       ///< elements of an image's row
  int64_t rows = 0;
  int channels = 0;  ///< of a panel
  int pieces = 1;    ///< rows of an image
  int columns = 0, lanes = 0;
  int members = 0, teams = 0;
  int slots = 0;
  int streamed = 0;                          ///< rows of a thread behind those of its slots, at most
  size_t fixed_bytes = 0, shared_bytes = 0;  ///< in front of the slots; with them
  // How a thread steps on by a slot: to another image and piece.
  int step_pieces = 0;
  int64_t step = 0, wrap = 0;  ///< in elements; in those back from behind an image's last piece

  bool fits() const { return panels > 0; }
  int64_t blocks() const { return int64_t{members} * teams; }
  /// A block's sums, in whole packs.
  constexpr int total_floats() const { return (kValues * channels + 3) / 4 * 4; }
  /// What threads leave of a panel's sums; later a double of each.
  constexpr int scratch_floats() const {
    const int sums = inner == 1 ? threads / 32 * channels * kValues : threads * 2 * kValues;
    return sums > 2 * threads ? sums : 2 * threads;
  }
  constexpr int entries() const { return kValues * channels; }
  /// Entries of the table through which members exchange sums.
  int64_t table_size() const { return members == 1 ? 0 : blocks() * kTurns * entries(); }
  size_t table_bytes() const { return static_cast<size_t>(table_size()) * sizeof(uint64_t); }
};

/// Where a thread that takes a panel in stands: thread `id` of member `member` of a team.
struct NormResidentPlace {
  int column, first_row;
  int first_channel;  ///< of the thread's packs, in a panel
  int split;          ///< elements of a pack that belong to it; those behind, to the next
  int slots;          ///< that hold a pack
  int streamed;       ///< packs behind those

  SINTER_HOST_DEVICE NormResidentPlace(const NormResidentPlan& plan, int pack, int member, int id) {
    const int lane = id / plan.columns, step = plan.members * plan.lanes;
    column = id - lane * plan.columns;
    first_row = member * plan.lanes + lane;
    const int left = static_cast<int>(plan.rows) - first_row;
    const int packs = lane < plan.lanes && left > 0 ? (left + step - 1) / step : 0;
    slots = packs < plan.slots ? packs : plan.slots;
    streamed = packs - slots;
    first_channel = column * pack;
    split = pack;
    if (plan.inner == 1) return;
    first_channel = 0;
    if (plan.channels == 1) return;
    const auto inner = static_cast<int>(plan.inner);
    first_channel = column * pack / inner;
    const int own = (first_channel + 1) * inner - column * pack;
    if (own < pack) split = own;
  }
};

/// Goes through a thread's packs, slot by slot.
class NormResidentWalk {
 public:
  SINTER_HOST_DEVICE NormResidentWalk(const NormResidentPlan& plan, const NormResidentPlace& place, int pack)
      : step_(plan.step), wrap_(plan.wrap), pieces_(plan.pieces), step_pieces_(plan.step_pieces) {
    const int image = place.first_row / plan.pieces;
    piece_ = place.first_row - image * plan.pieces;
    offset_ = image * plan.width + (int64_t{piece_} * plan.columns + place.column) * pack;
  }
  /// The element of panel 0 at which the pack begins; steps on to the next slot.
  SINTER_HOST_DEVICE int64_t next() {
    const int64_t now = offset_;
    offset_ += step_;
    piece_ += step_pieces_;
    if (piece_ >= pieces_) {
      piece_ -= pieces_;
      offset_ += wrap_;
    }
    return now;
  }
  /// The same of slot `i` from here on, where an image has one piece; stays.
  SINTER_HOST_DEVICE int64_t ahead(int i) const { return offset_ + i * step_; }

 private:
  int64_t offset_ = 0, step_, wrap_;
  int piece_ = 0, pieces_, step_pieces_;
};

namespace detail {

/// Elements of a byte of the mask, and the fewest of a plane: then a pack has elements of two channels at
/// most.
inline constexpr int64_t kMaskGroup = 8;
inline constexpr int64_t kLeastRunBytes = 128;  ///< neighbours in memory
/// Rows that may be streamed for ten that are kept: of larger tensors the second reading outweighs what is
/// saved. And the share of the GPU's places, in percent, that blocks must take then.
inline constexpr int64_t kMostStreamedForTen = 24, kLeastBusyPercent = 95;
inline constexpr int64_t kMostRoundsAlone = 4;
/// What a processor takes in, at most, if its blocks wait for no others: bytes, elements beyond its share,
/// and elements from which on most processors have to be busy.
inline constexpr int64_t kMostAloneBytes = 96 << 10, kMostExcess = 12 << 10, kFewElements = 8 << 10;

/// Blocks of `threads`, and what they have.
struct BlockRoom {
  int threads, blocks;
  size_t shared_bytes;
};

inline BlockRoom whole_processors(const NormRoom& room) {
  return {NormResidentPlan::kThreads, room.processors, room.shared_bytes};
}
inline BlockRoom half_processors(const NormRoom& room) {
  return {NormResidentPlan::kHalfThreads, 2 * room.processors, room.shared_of_half};
}

/// Cuts rows of `channels` channels; without columns if that cannot be done.
inline NormResidentPlan resident_panel(const ChannelView& view, int pack, int channels, int threads) {
  NormResidentPlan plan{
      .threads = threads, .inner = view.inner, .width = view.channels * view.inner, .channels = channels};
  const int64_t run = channels * view.inner;
  if (view.channels % channels != 0 || run % kMaskGroup != 0) return plan;
  const int64_t packs = run / pack, least = kMaskGroup / pack;  // a byte of the mask stays within a row
  if (packs <= threads) {
    plan.columns = static_cast<int>(packs);
  } else if (channels == 1) {
    int64_t best = 0;
    for (int64_t columns = least; columns <= threads; columns += least) {
      if (packs % columns == 0 && threads / columns * columns >= best) {
        plan.columns = static_cast<int>(columns);
        best = threads / columns * columns;
      }
    }
  }
  if (plan.columns == 0) return plan;
  plan.lanes = threads / plan.columns;
  plan.pieces = static_cast<int>(packs / plan.columns);
  plan.rows = view.outer * plan.pieces;
  return plan;
}

/// Slots that a thread of the panel's blocks has room for; fills fixed_bytes.
inline int64_t most_slots(NormResidentPlan& plan, const NormRoom& room, const BlockRoom& of_block) {
  if (plan.lanes == 0 || plan.rows > INT32_MAX / 2) return 0;
  plan.fixed_bytes = static_cast<size_t>(plan.channels) * NormResidentPlan::kParameterBytes +
                     static_cast<size_t>(plan.total_floats() + plan.scratch_floats()) * sizeof(float);
  const auto slot = static_cast<size_t>(plan.threads * NormResidentPlan::kPackBytes * room.tensors);
  if (plan.fixed_bytes + slot > of_block.shared_bytes) return 0;
  return std::min<int64_t>(static_cast<int64_t>((of_block.shared_bytes - plan.fixed_bytes) / slot),
                           NormResidentPlan::kMostSlots);
}

/// The plan of so many teams: it fits afterwards.
inline void settle(NormResidentPlan& plan, const NormRoom& room, int64_t panels, int64_t teams,
                   int64_t members, int64_t most) {
  const int64_t row_step = members * plan.lanes, packs = (plan.rows + row_step - 1) / row_step;
  plan.panels = panels;
  plan.teams = static_cast<int>(teams);
  plan.members = static_cast<int>(members);
  plan.slots = static_cast<int>(std::min(packs, most));
  plan.streamed = static_cast<int>(packs) - plan.slots;
  plan.shared_bytes =
      plan.fixed_bytes + static_cast<size_t>(plan.threads * NormResidentPlan::kPackBytes * room.tensors) *
                             static_cast<size_t>(plan.slots);
  const int64_t piece = plan.columns * (NormResidentPlan::kPackBytes / room.element_bytes);
  plan.step_pieces = static_cast<int>(row_step % plan.pieces);
  plan.step = row_step / plan.pieces * plan.width + plan.step_pieces * piece;
  plan.wrap = plan.width - plan.pieces * piece;
}

inline int64_t over(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Whether a block may have each panel for itself, and waits for no other: where most processors have one,
/// and take in little more than their share, or where all is small.
inline bool can_stay_alone(const NormResidentPlan& plan, const ChannelView& view, const NormRoom& room) {
  const int64_t panels = view.channels / plan.channels, packs = plan.rows * plan.columns;
  const int64_t bytes =
      over(panels, room.processors) * packs * NormResidentPlan::kPackBytes * int64_t{room.tensors};
  const int64_t elements = bytes / room.element_bytes, share = view.numel() * room.tensors / room.processors;
  const bool idle = elements > kFewElements && 5 * panels < 2 * room.processors;
  return !idle && elements <= share + kMostExcess && bytes <= kMostAloneBytes;
}

/// Shares the panels out, so that teams have at most `most_rounds` of them; the plan fits afterwards, or not.
/// `alone`: only to teams of one block, where that is good.
inline void share_out(NormResidentPlan& plan, const ChannelView& view, const NormRoom& room,
                      const BlockRoom& of_block, int64_t most_rounds, bool alone = false) {
  const int64_t most = most_slots(plan, room, of_block);
  if (most == 0) return;
  const int64_t needed = over(plan.rows, plan.lanes * most), panels = view.channels / plan.channels;
  if (needed == 0 || needed > of_block.blocks) return;
  if (alone && (needed > 1 || !can_stay_alone(plan, view, room))) return;
  const int64_t rounds = over(panels, std::min<int64_t>(panels, of_block.blocks / needed));
  if (rounds > most_rounds) return;
  const int64_t teams = over(panels, rounds), members = alone ? 1 : of_block.blocks / teams;
  settle(plan, room, panels, teams, std::min(members, over(plan.rows, plan.lanes)), most);
}

/// The same with a team for each panel, of which rows that find no place are streamed.
inline void share_out_streaming(NormResidentPlan& plan, const ChannelView& view, const NormRoom& room,
                                const BlockRoom& of_block) {
  const int64_t most = most_slots(plan, room, of_block);
  if (most == 0) return;
  const int64_t panels = view.channels / plan.channels, members = of_block.blocks / panels;
  if (members == 0 || members * panels * 100 < of_block.blocks * kLeastBusyPercent) return;
  if (plan.rows * 10 > members * plan.lanes * most * (10 + kMostStreamedForTen)) return;
  if (plan.rows <= (members - 1) * plan.lanes) return;  // too few rows for all of them
  settle(plan, room, panels, panels, members, most);
}

/// Neighbouring channels of a place are a panel's row: short runs where blocks can stay alone; else of 128
/// bytes, or 64, else all of a place, or a sector. A second round of panels needs runs of 128: of shorter
/// ones, memory is slow in both. Of gradients whose runs are of 128 bytes at least, or all that there is,
/// rows may be streamed.
inline NormResidentPlan keep_places(const ChannelView& view, const NormRoom& room) {
  const int pack = NormResidentPlan::kPackBytes / room.element_bytes;
  const BlockRoom blocks = whole_processors(room);
  const int64_t packs = view.channels / pack;
  for (const int columns : {2, 4, 8}) {
    NormResidentPlan plan = resident_panel(view, pack, columns * pack, blocks.threads);
    share_out(plan, view, room, blocks, kMostRoundsAlone, true);
    if (plan.fits()) return plan;
  }
  for (const bool streams : {false, true}) {
    if (streams && room.tensors == 1) continue;
    for (const int columns : {8, 4, 16, 2, 1}) {
      const bool whole = columns == packs;
      if ((columns == 16 || columns == 1 || (streams && columns < 8)) && !whole) continue;
      NormResidentPlan plan = resident_panel(view, pack, columns * pack, blocks.threads);
      if (streams) {
        share_out_streaming(plan, view, room, blocks);
      } else {
        share_out(plan, view, room, blocks, columns >= 8 ? std::max(1, 2 / room.tensors) : 1);
      }
      if (plan.fits()) return plan;
    }
  }
  return {};
}

/// The planes of neighbouring channels are. Teams are small: two blocks on a processor work while the other
/// waits, which pays where threads of smaller blocks are not left idle and where there is much to wait for.
inline NormResidentPlan keep_planes(const ChannelView& view, const NormRoom& room) {
  const int pack = NormResidentPlan::kPackBytes / room.element_bytes;
  const bool whole_planes = view.inner % kMaskGroup == 0;
  const int64_t most_rounds = whole_planes ? 2 : INT64_MAX;
  for (const int channels : {1, 2, 4, 8}) {
    const int64_t run = channels * view.inner;
    if (run % kMaskGroup != 0 || run * room.element_bytes < kLeastRunBytes) continue;
    NormResidentPlan own = resident_panel(view, pack, channels, NormResidentPlan::kThreads);
    share_out(own, view, room, whole_processors(room), 1, true);
    if (own.fits()) return own;
    for (const BlockRoom& blocks : {half_processors(room), whole_processors(room)}) {
      NormResidentPlan plan = resident_panel(view, pack, channels, blocks.threads);
      const bool halves = blocks.threads == NormResidentPlan::kHalfThreads;
      if (halves && plan.columns * plan.lanes * 16 < blocks.threads * 15) continue;
      if (halves && !whole_planes && room.tensors == 1) continue;
      share_out(plan, view, room, blocks, most_rounds);
      if (plan.fits()) return plan;
    }
    return {};
  }
  return {};
}

}  // namespace detail

/// Keeps `view` on chip where that is possible, and faster than passes over memory: those are slow where
/// planes are no whole packs, and else a tensor must not have to go through chip memory in many rounds, in
/// each of which the GPU waits for its members' sums.
inline NormResidentPlan plan_norm_resident(const ChannelView& view, const NormRoom& room) {
  if (view.numel() == 0) return {};
  if (view.inner == 1) return detail::keep_places(view, room);
  return view.inner < detail::kMaskGroup ? NormResidentPlan{} : detail::keep_planes(view, room);
}

}  // namespace sinter::ops
