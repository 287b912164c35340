// How the gradient of a gather is cut into tasks whose sums are held in shared memory. Host code without
// devices, so that a unit test can walk the tasks as the kernels do.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>

namespace sinter::ops {

/// Who adds to the sums of a task.
enum class Held {
  kWarps,  ///< a warp has a task and sums of its own
  kParts,  ///< the warps of a block share a task, each with sums of its own, which are added in the end
  kTurns,  ///< the threads of a block share a task and its sums, to which its warps add in turn
};

/// How the elements of a task lie.
enum class HeldWalk {
  kLine,   ///< one line, whose elements are neighbours
  kSlabs,  ///< whole slabs
  kTile,   ///< some columns of a slab
};

/// A gather whose indices (outer, extent, inner) are as large as the result (outer, rows, inner) but for the
/// axis.
struct GatherSizes {
  int64_t outer = 1, extent = 1, inner = 1, rows = 1;
  int64_t sum_bytes = 4;  ///< of an element of the compute type
};

/// What a plan depends on in a GPU.
struct HeldRoom {
  int64_t processors = 1;
  int64_t most_shared = 48 << 10;  ///< bytes of a block
  int64_t shared = 48 << 10;       ///< bytes of a processor
};

/// Steps [0, steps) of a task: elements of the indices, some of which may be none.
struct HeldTask {
  int64_t first = 0;  ///< the first element of the indices
  int64_t steps = 0;
  int64_t result = 0;   ///< the first element of the result
  int64_t outputs = 0;  ///< sums of the task
  int64_t width = 0;    ///< columns that there are, of a tile
};

/// An element of the indices, and the sum to which an index of 0 would bring it; each further row is
/// `row_step` sums on.
struct HeldElement {
  int64_t element = 0;
  uint32_t sum = 0;
  bool inside = false;
};

/// A task holds `bundle` whole slabs (all that share an index of the outer axes) or a tile of `width` columns
/// of a slab, and adds one of `parts` parts of the extent to it.
struct HeldLines {
  static constexpr int64_t kWarp = 32, kBlockWarps = 8, kMostOfOne = 16;

  Held mode = Held::kWarps;
  int64_t outer = 0, extent = 0, inner = 0, rows = 0;
  int64_t bundle = 1, tiles = 1, parts = 1;
  bool tiled = false;
  int64_t width = 1;  ///< columns of a task; a power of two if `tiled`, else `inner`
  int width_shift = 0;
  int64_t held = 0;         ///< sums of a task
  int64_t copy_stride = 0;  ///< from the sums of a warp to those of the next, with room for a shift
  int64_t threads = kWarp * kBlockWarps;
  int64_t shared_bytes = 0;
  cuda::WideDivide by_tiles;
  cuda::FastDivide by_slab, by_inner;

  int64_t tasks() const { return (outer + bundle - 1) / bundle * tiles; }
  int64_t blocks() const {
    return mode == Held::kWarps ? (tasks() + kBlockWarps - 1) / kBlockWarps : tasks() * parts;
  }
  SINTER_HOST_DEVICE int64_t results() const { return outer * rows * inner; }
  /// Whether 32 neighbours never meet in a sum.
  SINTER_HOST_DEVICE bool distinct() const { return width >= kWarp; }

  HeldWalk walk() const {
    if (tiled) return HeldWalk::kTile;
    return inner == 1 && bundle == 1 ? HeldWalk::kLine : HeldWalk::kSlabs;
  }

  /// Part `part` of `of_parts` of a task; `walk` is walk().
  template <HeldWalk walk>
  SINTER_HOST_DEVICE HeldTask task(int64_t number, int64_t part, int64_t of_parts) const {
    int64_t slab = number, column = 0;
    if constexpr (walk == HeldWalk::kTile) {
      slab = by_tiles.divide(number, column);
      column *= width;
    } else if constexpr (walk == HeldWalk::kSlabs) {
      slab *= bundle;
    }
    const int64_t slabs = outer - slab < bundle ? outer - slab : bundle;
    const int64_t begin = extent * part / of_parts, end = extent * (part + 1) / of_parts;
    HeldTask made;
    made.first = (slab * extent + begin) * inner + column;
    made.result = slab * rows * inner + column;
    made.width = inner - column < width ? inner - column : width;
    if constexpr (walk == HeldWalk::kTile) {
      made.steps = static_cast<uint32_t>((end - begin) << width_shift);
      made.outputs = static_cast<uint32_t>(rows << width_shift);
    } else {
      made.steps = static_cast<uint32_t>(((slabs - 1) * extent + end - begin) * inner);
      made.outputs = static_cast<uint32_t>(slabs * rows * inner);
    }
    return made;
  }

  template <HeldWalk walk>
  SINTER_HOST_DEVICE HeldElement element(const HeldTask& of, uint32_t step) const {
    const bool inside = step < of.steps;
    if constexpr (walk == HeldWalk::kTile) {
      const uint32_t column = step & (static_cast<uint32_t>(width) - 1);
      return {of.first + static_cast<int64_t>(step >> width_shift) * inner + column, column,
              inside && column < of.width};
    } else if constexpr (walk == HeldWalk::kSlabs) {
      uint32_t rest = step, column = 0;
      const uint32_t slab = bundle > 1 ? by_slab.divide(step, rest) : 0;
      by_inner.divide(rest, column);
      return {of.first + step, slab * static_cast<uint32_t>(rows * inner) + column, inside};
    } else {
      return {of.first + step, 0, inside};
    }
  }

  /// The distance between the sums of neighbouring rows.
  SINTER_HOST_DEVICE uint32_t row_step() const { return static_cast<uint32_t>(width); }
};

namespace detail {

constexpr int64_t kOwnBytes = 8 << 10;     // sums of a warp
constexpr int64_t kTurnBytes = 32 << 10;   // sums of a block, as far as rows allow
constexpr int64_t kWholeBytes = 48 << 10;  // ... of whole slabs
constexpr int64_t kLeastWidth = 8;         // columns of a tile: 64 bytes of indices
constexpr int64_t kShiftRoom = 24;         // sums: a shift, and up to a multiple of 8
constexpr int64_t kBundleSteps = 128, kBundleBytes = 4 << 10;
constexpr int64_t kMostPartBytes = int64_t{32} << 20;

/// Which columns a task has; false if not even one column fits.
inline bool choose_width(HeldLines& plan, const GatherSizes& sizes, const HeldRoom& room) {
  const auto fit = [&](int64_t bytes) { return bytes / sizes.sum_bytes / sizes.rows; };  // columns
  const int64_t most = fit(room.most_shared - kShiftRoom * sizes.sum_bytes);
  const auto take = [&](Held mode, int64_t width, bool tiled) {
    plan.mode = mode;
    plan.width = width;
    plan.tiled = tiled;
    return true;
  };
  if (sizes.inner <= fit(kOwnBytes)) return take(Held::kWarps, sizes.inner, false);
  const auto floor_of = [](int64_t width) {
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(width)));
  };
  if (fit(kOwnBytes) >= kLeastWidth) return take(Held::kWarps, floor_of(fit(kOwnBytes)), true);
  const bool small = sizes.inner <= kLeastWidth && sizes.inner <= most;
  if (sizes.inner <= fit(kWholeBytes) || small) return take(Held::kTurns, sizes.inner, false);
  const int64_t width = std::max(floor_of(fit(kTurnBytes)), std::min(kLeastWidth, floor_of(most)));
  return width >= 1 && take(Held::kTurns, width, true);
}

/// Small slabs are taken several at a time, if enough tasks remain.
inline void choose_bundle(HeldLines& plan, const GatherSizes& sizes, const HeldRoom& room) {
  if (plan.mode != Held::kWarps || plan.tiled) return;
  const int64_t steps = sizes.extent * sizes.inner;
  const int64_t wanted = std::min((kBundleSteps + steps - 1) / steps,
                                  kBundleBytes / (sizes.rows * sizes.inner * sizes.sum_bytes));
  plan.bundle = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, sizes.outer / (room.processors * 32)));
}

/// Long extents are cut where there are too few tasks to fill the GPU, into parts that are worth their sums.
inline void choose_parts(HeldLines& plan, const GatherSizes& sizes, const HeldRoom& room) {
  const int64_t tasks = plan.tasks(), steps = sizes.extent * plan.width;
  const bool own = plan.mode == Held::kWarps;
  if (own && (plan.bundle > 1 || tasks >= room.processors * HeldLines::kMostOfOne)) return;
  const int64_t of_slots = kMostPartBytes / (sizes.outer * sizes.rows * sizes.inner * sizes.sum_bytes);
  const int64_t most = std::min({steps / std::max<int64_t>(own ? 2048 : 4096, plan.held / 4), sizes.extent,
                                 std::max(of_slots, steps / (4 * plan.held))});
  if (own && most < 1) return;
  const int64_t copies = own ? HeldLines::kBlockWarps : 1;
  const int64_t block_bytes = copies * plan.copy_stride * sizes.sum_bytes + 1024;
  const int64_t beside = std::clamp<int64_t>(room.shared / block_bytes, 1, 2048 / plan.threads);
  if (own) plan.mode = Held::kParts;
  plan.parts =
      std::clamp<int64_t>((room.processors * beside + tasks - 1) / tasks, 1, std::max<int64_t>(most, 1));
}

}  // namespace detail

/// Sets `plan` and returns true if its sums fit into shared memory and its numbers into their types.
inline bool plan_held_lines(HeldLines& plan, const GatherSizes& sizes, const HeldRoom& room) {
  constexpr int64_t kMostSteps = int64_t{1} << 30;
  plan = {};
  plan.outer = sizes.outer;
  plan.extent = sizes.extent;
  plan.inner = sizes.inner;
  plan.rows = sizes.rows;
  if (sizes.outer < 1 || sizes.extent < 1 || sizes.inner < 1 || sizes.rows < 1) return false;
  if (!detail::choose_width(plan, sizes, room)) return false;
  if (plan.tiled) {
    plan.tiles = (sizes.inner + plan.width - 1) / plan.width;
    plan.width_shift = std::countr_zero(static_cast<uint64_t>(plan.width));
  }
  detail::choose_bundle(plan, sizes, room);
  plan.held = plan.bundle * sizes.rows * plan.width;
  plan.copy_stride = (plan.held + detail::kShiftRoom) / 8 * 8;
  if (plan.mode == Held::kTurns) {
    const int64_t bytes = plan.held * sizes.sum_bytes;
    plan.threads = bytes <= (28 << 10) ? 256 : bytes <= (56 << 10) ? 512 : 1024;
  }
  detail::choose_parts(plan, sizes, room);
  if (plan.held == 0 || plan.extent > kMostSteps / plan.width * plan.parts / 2 ||
      plan.blocks() > (int64_t{1} << 30)) {
    return false;
  }
  plan.shared_bytes =
      (plan.mode == Held::kTurns ? 1 : HeldLines::kBlockWarps) * plan.copy_stride * sizes.sum_bytes;
  if (plan.shared_bytes > room.most_shared) return false;
  plan.by_tiles = cuda::WideDivide(plan.tiles);
  plan.by_slab = cuda::FastDivide(static_cast<uint32_t>(plan.bundle > 1 ? sizes.extent * sizes.inner : 1));
  plan.by_inner = cuda::FastDivide(static_cast<uint32_t>(plan.tiled ? 1 : sizes.inner));
  return true;
}

}  // namespace sinter::ops
