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

  /// The plan of `key`, which may be null; nothing if none was added, or if it has gone.
  std::optional<Shared> find(const Key& key) {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    found->second.last_use.store(now(), std::memory_order_relaxed);
    return found->second.plan;
  }

  /// Keeps `plan`, and at most `limit` (1 or more) in all. If another thread was faster its plan stays, and
  /// is the answer.
  Shared add(const Key& key, Shared plan, size_t limit) {
    std::vector<Shared> gone;  // they end after the lock
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.try_emplace(key, std::move(plan)).first->second;
    entry.last_use.store(now(), std::memory_order_relaxed);
    Shared kept = entry.plan;
    while (entries_.size() > limit) gone.push_back(take_oldest());
    return kept;
  }

  size_t size() const {
    const std::shared_lock lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    explicit Entry(Shared made) : plan(std::move(made)) {}

    Shared plan;
    std::atomic<uint64_t> last_use = 0;
  };

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
