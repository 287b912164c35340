// PlanStore: what was made at some cost for each of many problems, up to a number of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sinter {

/// Plans by key; beyond a limit, those go that were not found for longest. Plans are shared, so that one may
/// go while a thread runs it. All members are safe to call from several threads, and finding one does not
/// wait for others that find.
template <class Key, class Plan, class Hash>
class PlanStore {
 public:
  using Shared = std::shared_ptr<const Plan>;

  /// The plan of `key`, which may be null; nothing if none was added, if it has gone, or if it was for now
  /// and has served its time.
  std::optional<Shared> find(const Key& key) {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    Entry& entry = found->second;
    entry.last_use.store(now(), std::memory_order_relaxed);
    if (entry.lease != 0 && entry.finds.fetch_add(1, std::memory_order_relaxed) >= entry.lease)
      return std::nullopt;
    return entry.plan;
  }

  /// Keeps `plan`, and at most `limit` (1 or more) in all. If another thread was faster its plan stays, and
  /// is the answer, unless it was added for now.
  Shared add(const Key& key, Shared plan, size_t limit) { return add(key, std::move(plan), limit, false); }

  /// The same for a plan that may not be the best there is: it is found kFirstLease times. Each time that
  /// another such plan takes its place, that one is found twice as often.
  Shared add_for_now(const Key& key, Shared plan, size_t limit) {
    return add(key, std::move(plan), limit, true);
  }

  static constexpr uint64_t kFirstLease = 64;

  size_t size() const {
    const std::shared_lock lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    explicit Entry(Shared made) : plan(std::move(made)) {}

    Shared plan;
    std::atomic<uint64_t> last_use = 0;
    uint64_t lease = 0;  // finds that the plan is for; 0: all
    std::atomic<uint64_t> finds = 0;
  };

  Shared add(const Key& key, Shared plan, size_t limit, bool for_now) {
    std::vector<Shared> gone;  // they end after the lock
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = entries_.try_emplace(key, plan);
    Entry& entry = place->second;
    entry.last_use.store(now(), std::memory_order_relaxed);
    if (is_new) {
      entry.lease = for_now ? kFirstLease : 0;
    } else if (entry.lease != 0) {
      gone.push_back(std::exchange(entry.plan, std::move(plan)));
      entry.lease = for_now ? 2 * entry.lease : 0;
      entry.finds.store(0, std::memory_order_relaxed);
    }
    Shared kept = entry.plan;
    while (entries_.size() > limit) gone.push_back(take_oldest());
    return kept;
  }

  uint64_t now() { return clock_.fetch_add(1, std::memory_order_relaxed); }

  Shared take_oldest() {
    auto oldest = entries_.begin();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.last_use < oldest->second.last_use) oldest = entry;
    }
    Shared plan = std::move(oldest->second.plan);
    entries_.erase(oldest);
    return plan;
  }

  mutable std::shared_mutex mutex_;
  std::unordered_map<Key, Entry, Hash> entries_;
  std::atomic<uint64_t> clock_ = 0;  // counts uses
};

}  // namespace sinter
