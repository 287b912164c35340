#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include <sinter/core/base/log.h>
#include <sinter/core/timing/choose_plan.h>

namespace sinter {
namespace {

/// Times candidates and keeps the best.
class PlanRace {
 public:
  PlanRace(PlanCandidates& candidates, double margin) : candidates_(candidates), margin_(margin) {}

  void time(size_t i) {
    const Outcome outcome = run(i);
    if (outcome == Outcome::kFailed) failed_.push_back(i);
    if (outcome != Outcome::kNoRoom) ++measured_;
  }
  /// What made a plan fail may have passed.
  void time_failed_again() {
    for (const size_t i : failed_) run(i);
  }

  /// Whether further candidates would be worth their time.
  bool is_over(size_t most) const {
    return measured_ >= most || (measured_ >= candidates_.favourites() && budget_.is_spent());
  }
  std::optional<size_t> best() const { return best_; }
  /// The best, beside those that it was measured against.
  TunedPlan outcome() const {
    TunedPlan tuned{candidates_.name(*best_), best_time_};
    for (const auto& [i, time] : times_) {
      if (i != best_) tuned.others.emplace_back(candidates_.name(i), time);
    }
    return tuned;
  }
  std::optional<size_t> without_room() const { return without_room_; }

 private:
  enum class Outcome : uint8_t { kTimed, kFailed, kNoRoom };

  Outcome run(size_t i) {
    try {
      const std::optional<double> time = candidates_.time(i, budget_);
      if (!time) return Outcome::kFailed;
      times_.emplace_back(i, *time);
      const double weighed = i == 0 ? *time * (1.0 - margin_) : *time;
      if (weighed < best_weighed_) {
        best_ = i;
        best_weighed_ = weighed;
        best_time_ = *time;
      }
      return Outcome::kTimed;
    } catch (const OutOfMemory&) {
      if (!without_room_) without_room_ = i;
      return Outcome::kNoRoom;
    }
  }

  PlanCandidates& candidates_;
  double margin_;
  TimeBudget budget_;
  size_t measured_ = 0;
  std::vector<std::pair<size_t, double>> times_;
  std::optional<size_t> best_, without_room_;
  double best_time_ = std::numeric_limits<double>::infinity(), best_weighed_ = best_time_;
  std::vector<size_t> failed_;
};

/// Where the candidate that the cache knows is; nothing if it knows none or the library does not list it.
std::optional<size_t> find_known(PlanCache& cache, const std::string& problem,
                                 const PlanCandidates& candidates) {
  const std::optional<TunedPlan> known = cache.find(problem);
  if (!known) return std::nullopt;
  for (size_t i = 0; i < candidates.count(); ++i) {
    if (candidates.name(i) == known->name) return i;
  }
  log::info("[plan_cache] the library no longer has plan {} for {}", known->name, problem);
  return std::nullopt;
}

std::mutex listener_mutex;
std::function<void()> listener;  // guarded by it

void tell_listener() {
  const std::lock_guard lock(listener_mutex);
  if (listener) listener();
}

}  // namespace

void on_timed_choice(std::function<void()> told) {
  const std::lock_guard lock(listener_mutex);
  listener = std::move(told);
}

std::optional<size_t> build_known_plan(PlanCache& cache, const std::string& problem,
                                       PlanCandidates& candidates) {
  const std::optional<size_t> known = find_known(cache, problem, candidates);
  return known && candidates.build(*known) ? known : std::nullopt;
}

PlanChoice choose_plan(PlanCache& cache, const std::string& problem, PlanCandidates& candidates,
                       Timing timing, size_t most_measured, double margin) {
  const std::optional<size_t> known = find_known(cache, problem, candidates);
  if (known && candidates.build(*known)) return {.plan = known};
  if (known) log::info("[plan_cache] plan {} for {} cannot be built", candidates.name(*known), problem);

  if (timing != Timing::kNow || !candidates.prepare_timing()) {
    for (size_t i = 0; i < candidates.count(); ++i) {
      if (known != i && candidates.build(i)) return {.plan = i, .settled = timing == Timing::kNever};
    }
    return {.plan = std::nullopt, .settled = false};
  }
  PlanRace race(candidates, margin);
  for (size_t i = 0; i < candidates.count() && !race.is_over(most_measured); ++i) {
    if (known != i && candidates.build(i)) race.time(i);
  }
  race.time_failed_again();
  tell_listener();
  if (race.without_room()) {
    return {.plan = race.best() ? race.best() : race.without_room(), .settled = false};
  }
  if (!race.best()) return {.plan = std::nullopt, .settled = false};
  cache.store(problem, race.outcome());
  return {.plan = race.best()};
}

}  // namespace sinter
