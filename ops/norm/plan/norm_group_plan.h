// How a GPU cuts a tensor of which blocks keep whole channels on chip between a normalisation's sums and its
// map. Pure arithmetic, without CUDA.
//
// A group of neighbouring channels belongs to one block: none waits for any other. A group is a matrix: an
// image's elements of these channels, which are neighbours in memory, are a row of `columns` packs. If a pack
// may have elements of several channels, or threads' packs be of different ones, threads have fixed columns
// and walk down the rows. Else the group is one channel, whose packs they take as they come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

/// What a GPU, a call and its pointers leave room for.
struct NormGroupRoom {
  int processors = 0;
  size_t shared_bytes = 0;  ///< that a block may have
  int tensors = 1;          ///< that are kept
  int element_bytes = 4;    ///< of their elements: 2, 4 or 8
  bool wide = false;        ///< pointers allow accesses of 16 bytes
  bool mask = false;        ///< a mask is written: a byte of it must be one block's
};

struct NormGroupPlan {
  static constexpr int kPackBytes = 16;
  static constexpr int kThreads = 768;  ///< that a processor has registers for, in one block or in several
  static constexpr int kValues = 2;     ///< sums of a channel
  static constexpr int kMostChannels = 128;

  int64_t groups = 0;  ///< 0: the tensor does not fit, or other kernels are faster
  int64_t all_channels = 0, inner = 1;
  int64_t width = 0;  ///< elements of an image
  int rows = 0;
  int channels = 0;    ///< of a group; the last one may have fewer
  int pack = 1;        ///< elements of an access: 16 bytes of them, or one
  int columns = 0;     ///< of a row of a group
  bool fixed = false;  ///< threads keep to a column, `lanes` of them to each
  int lanes = 1;
  int active = 0, threads = 0;               ///< of a block: those that take packs; all
  int slots = 0;                             ///< packs of a thread, at most
  size_t fixed_bytes = 0, shared_bytes = 0;  ///< in front of the slots; with them

  bool fits() const { return groups > 0; }
  /// What threads leave of their sums: a line for each lane, of so many places, no two lanes' in one bank.
  constexpr int lines() const { return fixed ? lanes : 1; }
  constexpr int pitch() const { return !fixed ? active : columns > 2 ? columns | 1 : columns; }
  /// Sums of a value that a thread has: one where all of its packs' elements are of one channel.
  constexpr int own_sums() const { return inner % pack == 0 || !fixed ? 1 : pack; }
  /// Neighbouring sums in a line that belong to a channel.
  constexpr int64_t span() const { return !fixed ? active : own_sums() == 1 ? inner / pack : inner; }
};

/// The plan with what its kernel divides by.
struct NormGroupWalk {
  NormGroupPlan plan;
  cuda::FastDivide by_columns, by_inner, by_span;

  explicit NormGroupWalk(const NormGroupPlan& p)
      : plan(p),
        by_columns(static_cast<uint32_t>(p.columns)),
        by_inner(static_cast<uint32_t>(p.fixed ? p.inner : 1)),
        by_span(static_cast<uint32_t>(p.span())) {}
};

/// The packs of thread `id` of a group.
class NormGroupPlace {
 public:
  int channels;  ///< that the group has
  int64_t first_channel;
  int column = 0;  ///< of a thread with a fixed one
  int packs = 0;

  SINTER_HOST_DEVICE NormGroupPlace(const NormGroupWalk& walk, int64_t group, int id)
      : first_channel(group * walk.plan.channels), walk_(walk) {
    const NormGroupPlan& plan = walk.plan;
    const int64_t left = plan.all_channels - first_channel;
    channels = left < plan.channels ? static_cast<int>(left) : plan.channels;
    begin_ = first_channel * plan.inner;
    if (id >= plan.active) return;
    int first = id, step = plan.active, count = plan.rows * plan.columns;
    if (plan.fixed) {
      uint32_t own;
      first = static_cast<int>(walk.by_columns.divide(static_cast<uint32_t>(id), own));
      column = static_cast<int>(own);
      step = plan.lanes;
      count = int64_t{column} * plan.pack < channels * plan.inner ? plan.rows : 0;
      begin_ += first * plan.width + column * plan.pack;
      stride_ = step * plan.width;
    } else {
      first_ = first;
      stride_ = step;
    }
    packs = first < count ? (count - 1 - first) / step + 1 : 0;
  }

  /// The element at which pack `i` begins.
  SINTER_HOST_DEVICE int64_t offset(int i) const {
    if (walk_.plan.fixed) return begin_ + i * stride_;
    uint32_t place;
    const auto item = static_cast<uint32_t>(first_ + i * static_cast<int>(stride_));
    const uint32_t row = walk_.by_columns.divide(item, place);
    return begin_ + row * walk_.plan.width + int64_t{place} * walk_.plan.pack;
  }
  /// The channel of the group that element `i` of each pack belongs to.
  SINTER_HOST_DEVICE int channel(int i) const {
    if (!walk_.plan.fixed) return 0;
    return static_cast<int>(walk_.by_inner.divide(static_cast<uint32_t>(column * walk_.plan.pack + i)));
  }

 private:
  const NormGroupWalk& walk_;
  int64_t begin_ = 0, stride_ = 0;
  int first_ = 0;
};

namespace detail {

inline constexpr int64_t kGroupMaskUnit = 8;  ///< elements of a byte of the mask
inline constexpr int64_t kSectorBytes = 32;
inline constexpr int64_t kLargestGroupRun = 128;  ///< bytes of a row of more channels than must be
inline constexpr double kCostOfRow = 16.0;        ///< in bytes that are read in its place
inline constexpr int64_t kManyGroups = 4;         ///< for each processor: groups are made larger
inline constexpr int64_t kLeastGroupThreads = 64;
inline constexpr int64_t kLeastPacksOfThread = 2;  ///< or a block has fewer threads
/// What a processor takes in, at most: bytes, for of larger tensors other kernels keep its memory busier;
/// elements more than its share would be if all were busy, which take as long as those kernels' waiting; and
/// elements, where they are accessed one by one. With more than a few, most processors have to be busy.
inline constexpr int64_t kMostGroupBytes = 96 << 10, kMostExcess = 12 << 10, kMostSingles = 24 << 10,
                         kFewElements = 8 << 10;

inline int64_t over(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// The fewest channels of a group whose rows are whole packs, and whole sectors where images are such; all
/// others are multiples of it. 0: no group has whole packs.
inline int64_t least_channels(const ChannelView& view, const NormGroupRoom& room, int pack) {
  const int64_t width = view.channels * view.inner;
  const int64_t unit = pack == 1 ? 1 : room.mask ? std::max<int64_t>(kGroupMaskUnit, pack) : pack;
  if (width % unit != 0) return 0;
  const int64_t of_sector = std::max<int64_t>(kSectorBytes / room.element_bytes, unit);
  const int64_t whole = width % of_sector == 0 ? of_sector : unit;
  return whole / std::gcd(view.inner, whole);
}

/// Blocks of one processor.
inline int64_t blocks_of_processor(const NormGroupPlan& plan, const NormGroupRoom& room) {
  return over(plan.groups, std::max(room.processors, 1));
}

/// Gives the groups their threads: fewer to a block where a processor has many blocks.
inline void share_threads(NormGroupPlan& plan, const NormGroupRoom& room) {
  const int64_t of_processor = blocks_of_processor(plan, room);
  const int64_t most = std::clamp<int64_t>(NormGroupPlan::kThreads / of_processor / 32 * 32,
                                           kLeastGroupThreads, NormGroupPlan::kThreads);
  const int64_t packs = int64_t{plan.rows} * plan.columns;
  if (plan.fixed) {
    plan.lanes =
        static_cast<int>(std::clamp<int64_t>(most / plan.columns, 1, over(plan.rows, kLeastPacksOfThread)));
    plan.active = plan.lanes * plan.columns;
    plan.slots = static_cast<int>(over(plan.rows, plan.lanes));
  } else {
    plan.active = static_cast<int>(std::min(most, over(over(packs, kLeastPacksOfThread), 32) * 32));
    plan.slots = static_cast<int>(over(packs, plan.active));
  }
  plan.threads = static_cast<int>(over(std::max(plan.active, plan.channels), 32) * 32);
}

/// Fills in the shared memory of a block.
inline void share_memory(NormGroupPlan& plan, const NormGroupRoom& room) {
  const int64_t computes = std::max(room.element_bytes, 4);
  const auto whole = [](int64_t bytes) { return over(bytes, 16) * 16; };
  plan.fixed_bytes = static_cast<size_t>(
      plan.channels * (4 * computes + NormGroupPlan::kValues * int64_t{sizeof(double)}) +
      whole(NormGroupPlan::kValues * plan.own_sums() * int64_t{plan.lines()} * plan.pitch() * computes));
  plan.shared_bytes = plan.fixed_bytes + static_cast<size_t>(int64_t{plan.slots} * plan.threads * plan.pack *
                                                             room.element_bytes * room.tensors);
}

/// The plan of groups of so many channels, whatever it needs.
inline NormGroupPlan plan_of_channels(const ChannelView& view, const NormGroupRoom& room, int pack,
                                      int64_t channels) {
  channels = std::min(channels, view.channels);
  const int64_t columns = over(channels * view.inner, pack);
  const bool fixed = channels > 1 || view.inner % pack != 0;
  if (channels > NormGroupPlan::kMostChannels || (fixed && columns > NormGroupPlan::kThreads) ||
      view.outer * columns > INT32_MAX / 2) {
    return {};
  }
  NormGroupPlan plan{.groups = over(view.channels, channels),
                     .all_channels = view.channels,
                     .inner = view.inner,
                     .width = view.channels * view.inner,
                     .rows = static_cast<int>(view.outer),
                     .channels = static_cast<int>(channels),
                     .pack = pack,
                     .columns = static_cast<int>(columns),
                     .fixed = fixed};
  share_threads(plan, room);
  share_memory(plan, room);
  return plan;
}

/// Elements that a processor takes in, with threads' empty slots.
inline int64_t of_processor(const NormGroupPlan& plan, const NormGroupRoom& room) {
  return blocks_of_processor(plan, room) * plan.slots * plan.threads * plan.pack * room.tensors;
}

/// Of the groups whose rows are of one to four sectors, or the smallest, those that give processors the least
/// to do; short rows touch more sectors. Larger ones where they would be small and many.
inline NormGroupPlan plan_groups(const ChannelView& view, const NormGroupRoom& room, int pack) {
  const int64_t least = least_channels(view, room, pack), bytes = view.inner * room.element_bytes;
  if (least == 0) return {};
  const int64_t first = over(kSectorBytes, least * bytes) * least;
  NormGroupPlan best;
  double best_cost = 0.0;
  for (const int64_t quarters : {4, 5, 6, 7, 8, 12, 16}) {
    const int64_t channels = first * quarters / 4 / least * least, run = channels * bytes;
    if (quarters > 4 && run > kLargestGroupRun) break;
    const NormGroupPlan plan = plan_of_channels(view, room, pack, channels);
    const double cost =
        static_cast<double>(of_processor(plan, room)) * (1.0 + kCostOfRow / static_cast<double>(run));
    if (plan.fits() && (!best.fits() || cost < best_cost)) best = plan, best_cost = cost;
  }
  while (best.fits() && best.groups >= kManyGroups * room.processors) {
    const NormGroupPlan larger = plan_of_channels(view, room, pack, int64_t{2} * best.channels);
    if (!larger.fits() || best.channels >= view.channels) break;
    best = larger;
  }
  if (!best.fits()) return {};
  const int64_t elements = of_processor(best, room), share = view.numel() * room.tensors / room.processors;
  const bool idle = elements > kFewElements && 5 * best.groups < 2 * room.processors;
  const bool slow = idle || elements > share + kMostExcess ||
                    (pack == 1 ? elements > kMostSingles : elements * room.element_bytes > kMostGroupBytes);
  return slow || best.shared_bytes > room.shared_bytes ? NormGroupPlan{} : best;
}

}  // namespace detail

/// Gives groups of channels to blocks where that is possible, and faster than what reads the tensor again or
/// lets all blocks wait for each other: where tensors are small, and channels enough to keep a GPU busy.
inline NormGroupPlan plan_norm_groups(const ChannelView& view, const NormGroupRoom& room) {
  if (view.numel() == 0 || view.numel() > INT32_MAX) return {};
  const int pack = NormGroupPlan::kPackBytes / room.element_bytes;
  if (room.wide) {
    const NormGroupPlan plan = detail::plan_groups(view, room, pack);
    if (plan.fits()) return plan;
  }
  return room.mask ? NormGroupPlan{} : detail::plan_groups(view, room, 1);
}

}  // namespace sinter::ops
