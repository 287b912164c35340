// The fastest of several ways to do one thing, measured once. Knows no library and no device; they stand
// behind PlanCandidates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/timing/time_budget.h>

namespace sinter {

/// A library's plans for one problem, in its own order of preference.
class PlanCandidates {
 public:
  virtual ~PlanCandidates() = default;

  virtual size_t count() const = 0;
  /// The same plan has the same name in every process.
  virtual std::string name(size_t i) const = 0;
  /// Makes plan i ready to run; false if the library or a limit turns it down. Called at most once for each
  /// i.
  virtual bool build(size_t i) = 0;
  /// So many are timed even if that takes long: those that the library thinks the best.
  virtual size_t favourites() const { return 4; }
  /// Called once before the first time(); false if plans cannot be timed at present.
  virtual bool prepare_timing() = 0;
  /// Microseconds of one run of plan i, which is built, as `budget` measures them; nothing if it failed.
  /// Throws OutOfMemory if there is no room for its scratch at present. May be called again after a failure.
  virtual std::optional<double> time(size_t i, TimeBudget& budget) = 0;
};

/// Whether candidates are timed; kNotNow where they would be at another moment.
enum class Timing : uint8_t { kNever, kNotNow, kNow };

/// What choose_plan found.
struct PlanChoice {
  std::optional<size_t> plan;  ///< a candidate, built; nothing if there is none that works
  /// False if the moment decided: timing was impossible, memory was short, or nothing worked. Asked again
  /// later, the answer may be a better one.
  bool settled = true;

  bool operator==(const PlanChoice&) const = default;
};

/// The candidate that `cache` remembers, built; nothing if it remembers none or the library has it no more.
std::optional<size_t> build_known_plan(PlanCache& cache, const std::string& problem,
                                       PlanCandidates& candidates);

/// The candidate to use: the one that `cache` remembers; else, under Timing::kNow and if timing is possible,
/// the fastest of the first `most_measured` that can be built, or of fewer beyond the favourites once the
/// TimeBudget is spent, which the cache then remembers; else the first that can be built. The first of all
/// stays unless another takes less than 1 - `margin` of its time. A plan that fails is tried once more behind
/// all others. Plans for which memory is short are passed over, and then nothing is remembered; if it is
/// short for all of them, it is the first.
PlanChoice choose_plan(PlanCache& cache, const std::string& problem, PlanCandidates& candidates,
                       Timing timing, size_t most_measured, double margin = 0.0);

/// Calls `listener` after every choice for which candidates were timed, in any thread but one at a time: for
/// programs that say why they seem to do nothing. An empty one ends that. Thread-safe; `listener` must choose
/// nothing itself.
void on_timed_choice(std::function<void()> listener);

}  // namespace sinter
