#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/plan/memory_plan.h>

namespace sinter {
namespace {

using Order = std::vector<uint32_t>;

constexpr size_t kMostBytes = size_t{1} << 62;  // of all buffers together
constexpr size_t kGoodEnough = 1024;            // within this part of the lower bound the search ends
// After so many looks at a placed buffer, of about two nanoseconds each, no further placement is begun; or
// n^2, if that is more: n buffers are placed with n^2 / 2.
constexpr int64_t kWork = int64_t{24} << 20;
constexpr int kMostRepairs = 1500;

/// A buffer that takes room.
struct Buffer {
  size_t bytes;
  int first, last;
  uint32_t index;  // among the caller's

  size_t steps() const { return static_cast<size_t>(static_cast<int64_t>(last) - first) + 1; }
};

enum class Fit {
  kLowest,    ///< the lowest gap that is large enough
  kTightest,  ///< the smallest one
  /// The lowest one, but counted from the end of the arena for the buffers of the second half of the program:
  /// what dies as the program goes on makes room for what comes to stay.
  kFromBothEnds
};

bool meet(const Buffer& a, const Buffer& b) {
  return a.last >= b.first && a.first <= b.last;
}

/// Places buffers one after another.
class Placement {
 public:
  explicit Placement(std::span<const Buffer> buffers)
      : buffers_(buffers), is_late_(buffers.size()), offsets_(buffers.size()), reaches_(buffers.size()) {
    int64_t begin = buffers.front().first, end = buffers.front().last;
    for (const Buffer& buffer : buffers) {
      begin = std::min<int64_t>(begin, buffer.first);
      end = std::max<int64_t>(end, buffer.last);
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
      is_late_[i] = int64_t{buffers[i].first} + buffers[i].last > begin + end;
    }
  }

  /// Places all buffers in this order. The bytes of the arena, or, as soon as they are not below `hopeless`,
  /// some number that is not either.
  size_t run(const Order& order, Fit fit, size_t hopeless) {
    for (Side& side : sides_) side.clear();
    size_t bytes = 0;
    for (const uint32_t i : order) {
      const Buffer& buffer = buffers_[i];
      const size_t far = is_far(i, fit) ? 1 : 0;
      const size_t offset = find_gap(sides_[far], buffer, fit), end = offset + buffer.bytes;
      reaches_[i] = fit == Fit::kFromBothEnds ? end + highest(sides_[1 - far], buffer) : end;
      bytes = std::max(bytes, reaches_[i]);
      if (bytes >= hopeless) return bytes;
      offsets_[i] = offset;
      insert(sides_[far], {offset, end, buffer.first, buffer.last});
    }
    return bytes;
  }

  /// Whether `fit` counts the offset of buffer i from the end of the arena.
  bool is_far(uint32_t i, Fit fit) const { return fit == Fit::kFromBothEnds && is_late_[i]; }
  const std::vector<size_t>& offsets() const { return offsets_; }
  /// The bytes of the arena that each buffer asked for when it was placed.
  const std::vector<size_t>& reaches() const { return reaches_; }
  /// How many placed buffers were looked at, in all runs.
  int64_t work() const { return work_; }

 private:
  struct Placed {
    size_t begin, end;
    int first, last;
  };
  using Side = std::vector<Placed>;  // by offset

  static bool meets(const Placed& placed, const Buffer& buffer) {
    return (placed.last >= buffer.first) &
           (placed.first <= buffer.last);  // no branch: it would be mispredicted
  }

  size_t find_gap(const Side& side, const Buffer& buffer, Fit fit) {
    size_t top = 0, best = 0, best_gap = std::numeric_limits<size_t>::max();
    size_t i = 0;
    for (; i < side.size(); ++i) {
      const bool counts = meets(side[i], buffer);  // else it is a point at 0
      const size_t begin = counts ? side[i].begin : 0, end = counts ? side[i].end : 0;
      if (begin >= top + buffer.bytes) {
        const size_t gap = begin - top;
        if (gap < best_gap) best = top, best_gap = gap;
        if (fit != Fit::kTightest || gap == buffer.bytes) break;
      }
      top = std::max(top, end);
    }
    work_ += static_cast<int64_t>(i);
    return best_gap == std::numeric_limits<size_t>::max() ? top : best;
  }

  /// The end of the highest of those that `buffer` meets; 0 for none.
  size_t highest(const Side& side, const Buffer& buffer) {
    size_t top = 0;
    for (const Placed& placed : side) top = std::max(top, meets(placed, buffer) ? placed.end : 0);
    work_ += std::ssize(side);
    return top;
  }

  static void insert(Side& side, const Placed& placed) {
    const auto behind = std::upper_bound(side.begin(), side.end(), placed.begin,
                                         [](size_t at, const Placed& other) { return at < other.begin; });
    side.insert(behind, placed);
  }

  std::span<const Buffer> buffers_;
  std::vector<bool> is_late_;
  std::vector<size_t> offsets_, reaches_;
  std::array<Side, 2> sides_;
  int64_t work_ = 0;
};

// ---- what is placed, and in which order

size_t round_up(size_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

std::vector<Buffer> buffers_with_room(std::span<const BufferLifetime> lifetimes) {
  std::vector<Buffer> buffers;
  buffers.reserve(lifetimes.size());
  size_t total = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto& [bytes, first, last] = lifetimes[i];
    SINTER_CHECK(first <= last, "[plan] buffer {} is in use from step {} on, but only until step {}", i,
                 first, last);
    if (bytes == 0) continue;
    SINTER_CHECK(bytes <= kMostBytes && total <= kMostBytes - round_up(bytes),
                 "[plan] the first {} buffers have more than {} bytes", i + 1, kMostBytes);
    total += round_up(bytes);
    buffers.push_back({round_up(bytes), first, last, static_cast<uint32_t>(i)});
  }
  return buffers;
}

/// The most bytes in use in one step.
size_t most_live_bytes(std::span<const Buffer> buffers) {
  struct Change {
    int64_t step;
    bool begins;
    size_t bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * buffers.size());
  for (const Buffer& buffer : buffers) {
    changes.push_back({buffer.first, true, buffer.bytes});
    changes.push_back({int64_t{buffer.last} + 1, false, buffer.bytes});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::pair(a.step, a.begins) < std::pair(b.step, b.begins);  // what ends makes room first
  });
  size_t live = 0, most = 0;
  for (const Change& change : changes) {
    live = change.begins ? live + change.bytes : live - change.bytes;
    most = std::max(most, live);
  }
  return most;
}

// ---- the search

/// The buffers by `key`, largest first; equals as they came.
template <class Key>
Order order_by(std::span<const Buffer> buffers, const Key& key) {
  Order order(buffers.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return key(buffers[a]) > key(buffers[b]); });
  return order;
}

/// Looks for the order and the fit with the smallest arena, until that is good or the work is too much.
class Search {
 public:
  Search(std::span<const Buffer> buffers, size_t bound, size_t enough)
      : buffers_(buffers), bound_(bound), enough_(enough), placement_(buffers), ranks_(buffers.size()) {
    const auto count = static_cast<int64_t>(buffers.size());
    most_work_ = std::max(kWork, count * count);
  }

  void run() {
    try_orders();
    for (int i = 0; i < kMostRepairs && !is_done(); ++i) repair();
  }

  size_t bytes() const { return bytes_; }
  size_t offset_of(uint32_t i) const { return placement_.is_far(i, fit_) ? bytes_ - end_of(i) : offsets_[i]; }

 private:
  bool is_done() const {
    return bytes_ <= enough_ || bytes_ - bound_ <= bound_ / kGoodEnough || placement_.work() >= most_work_;
  }

  /// Keeps the order if its arena is smaller than the best one's, or else no larger and `or_equal`.
  void consider(const Order& order, Fit fit, bool or_equal = false) {
    const size_t hopeless = or_equal ? bytes_ + 1 : bytes_;
    const size_t bytes = placement_.run(order, fit, hopeless);
    if (bytes >= hopeless) return;
    bytes_ = bytes;
    order_ = order;
    fit_ = fit;
    offsets_ = placement_.offsets();
    reaches_ = placement_.reaches();
  }

  /// By size is nearly always good; the others help where few large buffers stand among many small ones.
  void try_orders() {
    const auto size = [](const Buffer& b) { return static_cast<double>(b.bytes); };
    const auto steps = [](const Buffer& b) { return static_cast<double>(b.steps()); };
    const auto by = [&](Fit fit, const auto& key) {
      if (offsets_.empty() || !is_done()) consider(order_by(buffers_, key), fit);
    };
    const auto by_size = [](const Buffer& b) { return std::pair(b.bytes, b.steps()); };
    const auto soonest = [](const Buffer& b) { return std::pair(-int64_t{b.first}, b.steps()); };
    const auto longest = [](const Buffer& b) { return std::pair(b.steps(), b.bytes); };
    by(Fit::kLowest, by_size);
    by(Fit::kFromBothEnds, soonest);
    by(Fit::kFromBothEnds, longest);
    by(Fit::kTightest, soonest);
    by(Fit::kTightest, [&](const Buffer& b) { return size(b) * size(b) * steps(b); });
    by(Fit::kTightest, [&](const Buffer& b) { return size(b) * steps(b); });
    by(Fit::kTightest, [](const Buffer& b) { return std::pair(int64_t{b.last}, b.steps()); });
    by(Fit::kTightest, by_size);
    by(Fit::kLowest, longest);
  }

  /// Tries the best order with one buffer ahead of where it was: one at the top of the arena or one that
  /// holds such a one up there.
  void repair() {
    for (uint32_t rank = 0; rank < order_.size(); ++rank) ranks_[order_[rank]] = rank;
    uint32_t moved = pick([&](uint32_t i) { return reaches_[i] == bytes_; }, 0);
    constexpr int kMostDown = 3;
    if (flip()) {
      for (int down = 0; down < kMostDown && (down == 0 || flip()); ++down) moved = one_below(moved);
    }
    Order order = order_;
    const uint32_t from = ranks_[moved];
    const auto to = static_cast<uint32_t>(below(from > 0 ? from : order.size()));
    if (from == 0 || flip()) {
      std::swap(order[to], order[from]);
    } else {
      std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    }
    consider(order, fit_, true);
  }

  /// A buffer that was placed before `i` and ends where that begins; `i` if there is none.
  uint32_t one_below(uint32_t i) {
    const auto holds_up = [&](uint32_t other) {
      return ranks_[other] < ranks_[i] && end_of(other) == offsets_[i] &&
             placement_.is_far(other, fit_) == placement_.is_far(i, fit_) &&
             meet(buffers_[other], buffers_[i]);
    };
    return pick(holds_up, i);
  }

  /// One of the buffers that `is_wanted`, or `none`.
  template <class Wanted>
  uint32_t pick(const Wanted& is_wanted, uint32_t none) {
    candidates_.clear();
    for (uint32_t i = 0; i < buffers_.size(); ++i) {
      if (is_wanted(i)) candidates_.push_back(i);
    }
    return candidates_.empty() ? none : candidates_[below(candidates_.size())];
  }

  size_t end_of(uint32_t i) const { return offsets_[i] + buffers_[i].bytes; }
  size_t below(size_t count) { return random_() % count; }
  bool flip() { return (random_() & 1) != 0; }

  std::span<const Buffer> buffers_;
  size_t bound_, enough_;
  Placement placement_;
  int64_t most_work_ = 0;
  std::mt19937_64 random_{1};  // the same for all: plans do not change between runs

  size_t bytes_ = std::numeric_limits<size_t>::max();  // of the best order, which follows
  Order order_;
  Fit fit_ = Fit::kLowest;
  std::vector<size_t> offsets_, reaches_;

  std::vector<uint32_t> ranks_;  // by buffer: its place in the order
  std::vector<uint32_t> candidates_;
};

}  // namespace

MemoryPlan plan_memory(std::span<const BufferLifetime> lifetimes, size_t enough) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());
  const std::vector<Buffer> buffers = buffers_with_room(lifetimes);
  if (buffers.empty()) return plan;
  plan.lower_bound = most_live_bytes(buffers);
  Search search(buffers, plan.lower_bound, enough);
  search.run();
  plan.bytes = search.bytes();
  for (uint32_t i = 0; i < buffers.size(); ++i) plan.offsets[buffers[i].index] = search.offset_of(i);
  return plan;
}

}  // namespace sinter
